"""Frames without a video, for tests of the frame file and its cache."""

import numpy as np
import pytest

from reelabel.result import Frames, Orientation, Selection
from tests.clips import make_clip

__all__ = ["keyframes", "make_clip"]


@pytest.fixture
def keyframes():
    """Three small frames, shown four times."""
    rng = np.random.default_rng(7)
    return Frames.of(
        rng.integers(0, 256, (3, 28, 56, 3), np.uint8),
        Selection(
            pts=np.array([0, 512, 1024]),
            time_s=np.array([0.0, 1.0, 2.0]),
            frame_index=np.array([0, 12, -1]),
            is_keyframe=np.array([True, True, False]),
            picks=np.array([0, 0, 1, 2]),
            keyframes_in_file=3,
            total_frames=36,
            fps=12.0,
            duration_s=3.0,
            native_width_px=640,
            native_height_px=360,
            orientation=Orientation(),
            method="seek",
            note="",
            decode_ms=1.5,
        ),
    )
