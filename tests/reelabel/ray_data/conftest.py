"""Videos on a web server of ours, and what prepares them."""

import pytest

from reelabel import PrepareVideo
from tests.clips import make_clip
from tests.reelabel.sources.web_server import serving

__all__ = ["make_clip"]

WEB = {"allow_private": True}


@pytest.fixture
def server():
    with serving() as server:
        yield server


@pytest.fixture
def preparing():
    """Make objects that give four frames as an array, unless told otherwise, and end their processes."""
    made = []

    def prepare(**options):
        defaults = {"sampling": {"num_frames": 4}, "output_format": "numpy", "web": WEB}
        made.append(PrepareVideo(**defaults | options))
        return made[-1]

    yield prepare
    for one in made:
        one.close()
