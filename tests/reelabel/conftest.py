"""Clips for the tests of this folder."""

from tests.clips import decode_linearly, make_clip

__all__ = ["decode_linearly", "make_clip"]
