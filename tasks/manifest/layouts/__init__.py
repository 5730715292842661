"""Manifests from the files in which public benchmarks are given out, and from any CSV."""
