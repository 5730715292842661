"""The Arrow frame file of one video, its cache, and what fills it."""
