"""Videos that are members of an archive, or values of a column."""
