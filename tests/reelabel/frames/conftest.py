"""Frames without a video, for tests of the frame file and its cache; and a reader of videos on S3."""

import numpy as np
import pytest

from reelabel.frames.cache import FrameCache
from reelabel.frames.fetch import VideoReader
from reelabel.options import Limits
from reelabel.result import Frames
from tests.clips import make_clip
from tests.frame_files import selection_of

__all__ = ["keyframes", "make_clip"]


@pytest.fixture
def keyframes():
    """Three small frames, shown four times."""
    rng = np.random.default_rng(7)
    return Frames.of(
        rng.integers(0, 256, (3, 28, 56, 3), np.uint8),
        selection_of(
            3,
            pts=np.array([0, 512, 1024]),
            frame_index=np.array([0, 12, -1]),
            is_keyframe=np.array([True, True, False]),
            picks=np.array([0, 0, 1, 2]),
            total_frames=36,
            fps=12.0,
            native_width_px=640,
            native_height_px=360,
            decode_ms=1.5,
        ),
    )


@pytest.fixture
def reader(objects, store_settings, pool):
    return VideoReader(
        objects=objects,
        cache=FrameCache(objects, f"{store_settings.uri}/cache"),
        pool=pool,
        limits=Limits(),
        ranges_min_bytes=0,
    )


@pytest.fixture
def put(objects, store_settings):
    """Put a file on the server; gives what the store says of it."""

    def put(path):
        uri = f"{store_settings.uri}/{path.name}"
        objects.replace(uri, path.read_bytes())
        return objects.stat(uri)

    return put
