"""Benchmarks of single requests over HTTP by number of clients, compared with the flow on the same videos."""
