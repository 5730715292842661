"""Describes videos by the embeddings of their frames: chunks, tags, captions, scenes; NumPy only."""
