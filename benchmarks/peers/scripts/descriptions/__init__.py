"""Videos on S3 embedded, tagged and searched by text, by each tool."""
