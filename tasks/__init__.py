"""The work: manifests, videos, frame files, the model, results."""
