"""`reelabel evaluate` and `reelabel route`."""
