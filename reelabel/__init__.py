"""Exact frames from any video."""
