"""Frames of videos on S3, by each tool."""
