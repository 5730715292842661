"""What a sampler knows of a video."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Indices: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SourceFacts:
    """One video stream, as far as the choice of its frames depends on it.

    vLLM's own loaders take OpenCV's facts: its frame rate, and the number of frames divided by it for
    a duration. Who wants vLLM's frames of a file gives the same.

    Attributes:
        total_frames: Frames that a full linear decode shows; at least 1.
        fps: Frames per second; 0.0 where unknown.
        duration_s: Length in seconds; 0.0 where unknown.
        width_px: Width as stored; 0 where unknown.
        height_px: Height as stored; 0 where unknown.
        times_s: Each frame's presentation time in seconds; shape (total_frames,), float64; None where
            frames are evenly spaced or their times unknown.
    """

    total_frames: int
    fps: float
    duration_s: float
    width_px: int = 0
    height_px: int = 0
    times_s: npt.NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        """Check that the facts are possible."""
        if self.total_frames < 1:
            raise ValueError(f"a video has at least 1 frame, got {self.total_frames}")
        if not all(math.isfinite(value) and value >= 0 for value in (self.fps, self.duration_s)):
            raise ValueError(f"fps and duration_s are finite and not negative, got {self.fps} and {self.duration_s}")
        if self.times_s is None:
            return
        if self.times_s.shape != (self.total_frames,) or not np.isfinite(self.times_s).all():
            raise ValueError(f"times_s must be {self.total_frames} finite numbers, got shape {self.times_s.shape}")

    @property
    def length_s(self) -> float:
        """The duration, estimated where it is unknown; 0 where the frame rate is unknown too.

        The estimate is the one of GLM's video processors in transformers.
        """
        if self.duration_s or not self.fps:
            return self.duration_s
        return round((self.total_frames - 1) / self.fps) + 1
