"""Limits on the videos that are decoded."""

from __future__ import annotations

from dataclasses import dataclass

from reelabel.options import check_options, option


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on one video; a video that exceeds them fails with `video_too_large`."""

    max_video_bytes: int = option(4 * 1024**3, "Size of the file.", ge=1)
    max_frame_pixels: int = option(64_000_000, "Width times height of a frame.", ge=1)
    max_frames: int = option(1_000_000, "Frames of the video, if they must be counted.", ge=1)
    max_duration_s: float = option(86_400.0, "Time that its frames span, or that its header states, in seconds.", gt=0)

    def __post_init__(self) -> None:
        check_options(self, Limits)
