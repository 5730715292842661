"""Search of made embeddings, compared with the products of all vectors."""
