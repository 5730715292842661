"""What a live session leaves behind: rows and frame files, read and replayed."""
