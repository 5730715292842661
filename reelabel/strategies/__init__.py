"""Strategies for reaching the chosen frames, from the cheapest to the one that always works."""
