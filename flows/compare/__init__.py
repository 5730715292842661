"""Configurations compared by `evaluate`."""
