"""Search of made embeddings: the index against the exact search, and against libraries of the field."""
