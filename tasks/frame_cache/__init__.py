"""The cache of frame files: extraction into it, eviction, orphans, fingerprints, and pictures of frames."""
