"""Disposable decoding processes."""
