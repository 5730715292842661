"""The cache of frame files: eviction, orphans, fingerprints."""
