"""Video preparation for libraries that process rows in columnar batches, such as Ray Data."""
