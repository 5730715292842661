"""Where scenes change: each method is one file and one record."""
