"""Surveys of a manifest's videos before a run, from their indexes only."""
