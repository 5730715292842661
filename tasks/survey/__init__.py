"""What a manifest's videos are, before a run: read from their indexes alone."""
