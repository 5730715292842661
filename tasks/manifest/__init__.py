"""Manifests: read, validated as a whole before anything is written, and split into shards."""
