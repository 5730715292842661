"""A typical user's script for each peer, run by the peer's own Python."""
