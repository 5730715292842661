"""Frame files of frames that are in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reelabel.frames.frame_file import encode_frame_file
from reelabel.sampled_frames import Orientation, SampledFrames
from reelabel.sampling.options import Sampling

if TYPE_CHECKING:
    import numpy.typing as npt


def frame_file_of(
    frames: npt.NDArray[np.uint8],
    *,
    fps: float,
    source_uri: str = "v",
    fingerprint: str = "e",
    sampling: Sampling | None = None,
) -> bytes:
    """Return the frame file of a video whose frames were all picked.

    Args:
        frames: RGB pixels; shape (T, H, W, 3).
        fps: Its frames a second.
        source_uri: Where it would be.
        fingerprint: Its version.
        sampling: How frames would have been chosen.
    """
    count, height, width, _ = frames.shape
    order = np.arange(count)
    sampled = SampledFrames(
        images=frames,
        pts=order,
        time_s=order / fps,
        frame_index=order,
        is_keyframe=np.ones(count, bool),
        picks=order,
        keyframes_in_file=count,
        total_frames=count,
        fps=fps,
        duration_s=count / fps,
        native_width_px=width,
        native_height_px=height,
        orientation=Orientation(),
        method="index",
        reason="",
        decode_ms=0.0,
    )
    file = encode_frame_file(sampled, source_uri=source_uri, fingerprint=fingerprint, sampling=sampling or Sampling())
    return file.data
