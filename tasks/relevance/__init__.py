"""The frames of a video that fit a job's question best, by an image-text model's embeddings."""
