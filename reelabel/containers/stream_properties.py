"""Properties of a video stream, as declared by its container."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import av
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from av.container import InputContainer
    from av.video.stream import VideoStream


_LATEST_MS = 2.0**53  # differences of larger numbers are inexact, and may exceed 64 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamProperties:
    """The properties of one video stream.

    Attributes:
        time_base: Unit of its timestamps, in seconds; 0 if unknown.
        fps: Frame rate, as `frame_rate` returns it; 0.0 if unknown.
        duration_s: Duration; 0.0 if unknown.
        pixel_aspect: Sample aspect ratio; 1.0 if unspecified.
    """

    time_base: Fraction
    fps: float
    duration_s: float
    pixel_aspect: float

    @classmethod
    def of(cls, container: InputContainer, stream: VideoStream) -> StreamProperties:
        """Read the properties. Call it after decoding a frame: some codecs carry the aspect ratio only there."""
        time_base = stream.time_base or Fraction(0)
        aspect = stream.sample_aspect_ratio or stream.codec_context.sample_aspect_ratio
        return cls(
            time_base=time_base,
            fps=frame_rate(stream),
            duration_s=float((stream.duration or 0) * time_base) or (container.duration or 0) / av.time_base,
            pixel_aspect=float(aspect or 1),
        )


def frame_rate(stream: VideoStream) -> float:
    """Return the average frame rate, else FFmpeg's guess, as OpenCV and thus vLLM's loaders do; 0.0 if unknown."""
    return float(stream.average_rate or stream.guessed_rate or 0)


def pts_to_ms(
    pts: Sequence[int | None] | npt.NDArray[np.int64], time_base: Fraction | None
) -> npt.NDArray[np.int64] | None:
    """Convert PTS to milliseconds, sorted ascending; None if the time base or any PTS is unknown.

    Times past `_LATEST_MS` are cut off there.
    """
    if not time_base or any(each is None for each in pts):
        return None
    times_ms = np.rint(np.asarray(pts, np.float64) * float(time_base * 1000))
    return np.sort(times_ms.clip(-_LATEST_MS, _LATEST_MS).astype(np.int64))


def one_pts_to_ms(pts: int | None, time_base: Fraction | None) -> int | None:
    """Convert one PTS to milliseconds; None if it or the time base is unknown."""
    times_ms = pts_to_ms([pts], time_base)
    return None if times_ms is None else int(times_ms[0])
