"""Probabilities that are as sure as they are right: one temperature, fitted on known answers."""
