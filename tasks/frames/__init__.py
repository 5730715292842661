"""The Arrow file of one video's frames, and its cache."""
