"""Search of all cached embeddings: the moments whose frames fit a text, a picture or another moment best."""
