"""Single requests: a question about a video, or what it shows, answered in one JSON."""
