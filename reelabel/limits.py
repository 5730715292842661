"""Limits on the videos that are decoded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on one video; a video that exceeds them fails with `video_too_large`.

    Attributes:
        max_video_bytes: Size of the file.
        max_frame_pixels: Width times height of a frame.
        max_frames: Frames of the video, if they must be counted.
        max_duration_s: Time that its frames span, or that its header states, in seconds.
    """

    max_video_bytes: int = 4 * 1024**3
    max_frame_pixels: int = 64_000_000
    max_frames: int = 1_000_000
    max_duration_s: float = 86_400.0
