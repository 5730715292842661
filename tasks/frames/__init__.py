"""Frame files (one Arrow file per video), and the cache that stores them."""
