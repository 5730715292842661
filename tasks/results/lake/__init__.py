"""Export of ended runs to a lake, in several formats."""
