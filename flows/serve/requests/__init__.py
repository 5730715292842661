"""Single requests: questions about a video, and descriptions."""
