"""A run as one page: what stands in the database and the cache, gathered and rendered into one HTML file."""
