"""Enforce the limit on a video's duration, whether its header or its frames claim it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reelabel.errors import VideoTooLargeError

if TYPE_CHECKING:
    from reelabel.limits import Limits
    from reelabel.sampled_frames import SampledFrames

# From there on, seconds in float64 no longer resolve milliseconds, and frames merge.
_LATEST_S = 2.0**53 / 1e3


def check_duration(duration_s: float, limits: Limits, *, what: str = "duration") -> None:
    """Raise if a duration exceeds the limit.

    Args:
        duration_s: Duration in seconds.
        limits: Limits on the video's size.
        what: What lasts that long, for the message.

    Raises:
        VideoTooLargeError: It exceeds `limits.max_duration_s`, or is not a number.
    """
    if not duration_s <= limits.max_duration_s:
        raise VideoTooLargeError(
            f"The video's {what} is {duration_s:,.0f} s, which exceeds extract.max_duration_s "
            f"({limits.max_duration_s:,.0f} s)."
        )


def check_frame_times(frames: SampledFrames, limits: Limits) -> SampledFrames:
    """Return the frames if their times, and all that is known of the others', are within the limit.

    Times count from the first frame: recordings of live streams start anywhere.

    Raises:
        VideoTooLargeError: The first and the last frame are more than `limits.max_duration_s` apart, or would be at
            the video's frame rate; or times are too large to be exact.
    """
    ends_ms = [] if frames.keyframe_ms is None else [*frames.keyframe_ms[:1], *frames.keyframe_ms[-1:]]
    first_ms = [] if frames.first_ms is None else [frames.first_ms]
    times_s = np.concatenate([frames.time_s, np.array([*ends_ms, *first_ms]) / 1e3])
    if not np.abs(times_s).max() < _LATEST_S:
        raise VideoTooLargeError(
            f"The video's frame times reach {np.abs(times_s).max():,.0f} s, where they are no longer exact; remux it "
            "so that it starts at 0."
        )
    check_duration(float(np.ptp(times_s)), limits, what="span of frame times")
    check_duration(frames.duration_s, limits)
    if frames.fps:
        count = frames.total_frames or int(frames.frame_index.max()) + 1
        check_duration(count / frames.fps, limits, what=f"length of {count:,} frames at {frames.fps:g} fps")
    return frames
