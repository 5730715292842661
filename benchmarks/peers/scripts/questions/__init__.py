"""Questions about videos on S3, by each tool."""
