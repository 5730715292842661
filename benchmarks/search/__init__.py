"""Benchmarks of search on synthetic embeddings, compared with the products of all vectors."""
