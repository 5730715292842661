"""Bytes of videos by URI: S3, the web, folders, data URIs; whole or by ranges."""
