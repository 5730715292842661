"""Proofs and measures that run on demand: conformance, fuzzing."""
