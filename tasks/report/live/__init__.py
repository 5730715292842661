"""The page of a live session."""
