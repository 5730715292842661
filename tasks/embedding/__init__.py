"""Embeds frames and texts with an image-text encoder, and stores the vectors in files."""
