"""Descriptions: how fast stored embeddings are tagged again, what keeps the encoder waiting, and long films."""
