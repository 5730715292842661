"""Benchmarks and exactness checks behind the figures of the documentation: `python -m benchmarks --help`."""
