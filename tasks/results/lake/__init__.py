"""Rows of ended runs in a lake: what is due, and the formats they are written in."""
