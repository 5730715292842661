"""Cost of getting frames: decoding them, and fetching them from S3."""
