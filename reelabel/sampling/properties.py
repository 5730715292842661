"""The stream properties that samplers use."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from reelabel.errors import SamplingRefusedError

Indices: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VideoProperties:
    """The properties of a video stream that determine which frames are sampled.

    vLLM's loaders use OpenCV's: its frame rate, and the frame count divided by it as the duration. Pass the same to
    sample the same frames as vLLM.

    Attributes:
        total_frames: Number of frames output by a full linear decode; at least 1.
        fps: Frames per second; 0.0 if unknown.
        duration_s: Duration in seconds; 0.0 if unknown.
        width_px: Width as stored; 0 if unknown.
        height_px: Height as stored; 0 if unknown.
        times_s: Presentation time of each frame in seconds, never falling; shape (total_frames,), float64; None if
            frames are evenly spaced or their times are unknown.
    """

    total_frames: int
    fps: float
    duration_s: float
    width_px: int = 0
    height_px: int = 0
    times_s: npt.NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        if self.total_frames < 1:
            raise ValueError(f"total_frames must be at least 1, got {self.total_frames}")
        if not all(math.isfinite(value) and value >= 0 for value in (self.fps, self.duration_s)):
            raise ValueError(
                f"fps and duration_s must be finite and non-negative, got {self.fps} and {self.duration_s}"
            )
        if self.times_s is None:
            return
        if self.times_s.shape != (self.total_frames,) or not np.isfinite(self.times_s).all():
            raise ValueError(f"times_s must be {self.total_frames} finite numbers, got shape {self.times_s.shape}")
        if (np.diff(self.times_s) < 0).any():
            raise ValueError("times_s must never fall")

    def require_rate(self, sampler: str, *, instead: str) -> None:
        """Raise SamplingRefusedError for a video without a frame rate, and name a sampler that needs none."""
        if self.fps == 0:
            raise SamplingRefusedError(
                f"The sampler {sampler} needs a frame rate, which the video lacks; use the sampler {instead}."
            )

    @property
    def length_s(self) -> float:
        """The duration, estimated from the frame rate if unknown; 0 if that is unknown too.

        The estimate is that of GLM's video processors in transformers.
        """
        if self.duration_s or not self.fps:
            return self.duration_s
        return round((self.total_frames - 1) / self.fps) + 1
