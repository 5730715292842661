"""Videos for libraries that move rows in batches of columns, such as Ray Data."""
