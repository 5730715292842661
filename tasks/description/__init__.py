"""What videos show, by the embeddings of their frames: chunks, tags, captions, scenes; NumPy only."""
