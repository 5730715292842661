"""Container formats: indexes, sample tables and keyframe times."""
