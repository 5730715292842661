"""Benchmarks of live sessions: latency by history, long streams, and agreement with `classify`."""
