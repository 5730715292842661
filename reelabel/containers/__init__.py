"""What containers say: their indexes, sample tables and keyframe times."""
