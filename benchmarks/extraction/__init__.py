"""Cost of getting frames: decoding, fetching, storing, dropping similar ones, and the frame cache."""
