"""Embeddings of frames and texts by an image-text encoder, and the files that keep them."""
