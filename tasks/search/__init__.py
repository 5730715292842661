"""Searches all cached embeddings for the moments that best fit a text, a picture or another moment."""
