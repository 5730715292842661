"""What starts, follows and foretells runs."""
