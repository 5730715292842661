"""The page of a run that describes videos."""
