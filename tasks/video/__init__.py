"""Exact frame extraction with PyAV and NumPy: sampling, decoding, and a pool of disposable processes."""
