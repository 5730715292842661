"""A grey probe video, to test whether an engine or a server answers at all."""

from __future__ import annotations

import numpy as np

from reelabel.frames.cache_key import FrameIdentity
from reelabel.frames.frame_file import write_frames
from reelabel.result import Frames, Orientation, Selection
from reelabel.sampling.options import Sampling

_SIDE_PX = 56  # a multiple of all common patch sizes


def probe_video() -> bytes:
    """Make the frame file of a video with two small grey frames."""
    count = 2
    keyframes = Frames.of(
        np.full((count, _SIDE_PX, _SIDE_PX, 3), 128, np.uint8),
        Selection(
            pts=np.arange(count),
            time_s=np.arange(count, dtype=np.float64),
            frame_index=np.arange(count),
            is_keyframe=np.ones(count, bool),
            picks=np.arange(count),
            keyframes_in_file=count,
            total_frames=count,
            fps=1.0,
            duration_s=float(count),
            native_width_px=_SIDE_PX,
            native_height_px=_SIDE_PX,
            orientation=Orientation(),
            method="linear",
            note="",
            decode_ms=0.0,
        ),
    )
    sampling = Sampling(max_pixels=602_112, size_multiple_px=28)
    return write_frames(keyframes, FrameIdentity(sampling=sampling))
