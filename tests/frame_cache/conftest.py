"""Frames and clips shared with the tests of frame files."""

from tests.reelabel.frames.conftest import keyframes, make_clip

__all__ = ["keyframes", "make_clip"]
