"""Deployments and what runs by schedule."""
