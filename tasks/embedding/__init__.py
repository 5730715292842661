"""Embeddings of frames and texts by the two towers of an image-text model, and the files that keep them."""
