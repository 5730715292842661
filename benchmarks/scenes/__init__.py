"""Compares methods of scene detection on clips with known scene changes."""
