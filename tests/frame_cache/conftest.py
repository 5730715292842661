"""An extractor, and frames and clips shared with the tests of frame files."""

import pytest

from tests.factories import make_extractor
from tests.reelabel.frames.conftest import keyframes, make_clip, put, reader

__all__ = ["keyframes", "make_clip", "put", "reader"]


@pytest.fixture
def preparer(tmp_path, pool):
    return make_extractor(tmp_path, pool)
