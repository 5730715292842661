"""Descriptions: how fast stored embeddings are tagged again, what keeps the towers waiting, and long films."""
