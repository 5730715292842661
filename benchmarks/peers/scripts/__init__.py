"""What a user would write with each peer; a script is run by the peer's own Python."""
