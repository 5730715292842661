"""Manifests: read, checked whole before anything is written, cut into shards."""
