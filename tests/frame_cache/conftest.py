"""The frames that the tests of the frame file use as well."""

from tests.reelabel.frames.conftest import keyframes

__all__ = ["keyframes"]
