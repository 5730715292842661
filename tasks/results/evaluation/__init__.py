"""Stored evaluations, and temperatures and margins that were fitted on known answers."""
