"""Frames shared with the tests of frame files."""

from tests.reelabel.frames.conftest import keyframes

__all__ = ["keyframes"]
