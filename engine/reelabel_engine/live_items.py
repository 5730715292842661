"""What a live session shows its model: pairs of frames, each a video of two at their true times, and spans of audio."""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b
from typing import ClassVar, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

# Models with videos of several frames encode them in pairs, each by itself.
FRAMES_PER_PAIR = 2

_RGB = 3

AUDIO_HZ = 16_000

# The encoder of Qwen2.5-Omni attends within two seconds, and its prompts alternate between two seconds of frames and
# two of audio.
SPAN_S = 2.0
# Ends the name of a video of frames that a session kept: the model is shown each pair at its own time, as it was then.
FOOTAGE = ".footage.mkv"


class FramePair(msgspec.Struct, frozen=True, kw_only=True, eq=False, tag=True, dict=True, weakref=True):
    """Two consecutive kept frames."""

    images: npt.NDArray[np.uint8]  # RGB pixels as the model sees them; shape (2, H, W, 3), uint8
    times_s: tuple[float, float]  # when each was taken, in seconds since the session began
    frames: int = FRAMES_PER_PAIR  # different ones: 1 if the last is still alone, and shown twice

    def __post_init__(self) -> None:
        """Check the shape and the times."""
        shape = self.images.shape
        if self.images.dtype != np.uint8 or len(shape) != 4 or shape[0] != FRAMES_PER_PAIR or shape[-1] != _RGB:  # noqa: PLR2004
            raise ValueError(f"images must be (2, H, W, 3) of uint8, got {shape} of {self.images.dtype}")
        if not 0 <= self.times_s[0] <= self.times_s[1]:
            raise ValueError(f"times must neither decrease nor be negative, got {self.times_s}")

    @property
    def distinct(self) -> tuple[tuple[npt.NDArray[np.uint8], float], ...]:
        """Its different frames: the pixels of each, shape (H, W, 3), and its time."""
        return tuple(zip(self.images, self.times_s, strict=True))[: self.frames]

    @cached_property
    def hash(self) -> str:
        """Identify exactly these pixels at these times."""
        digest = blake2b(np.ascontiguousarray(self.images).data, digest_size=16)
        digest.update(repr((self.images.shape, self.times_s)).encode())
        return digest.hexdigest()


class AudioSpan(msgspec.Struct, frozen=True, kw_only=True, eq=False, tag=True, dict=True, weakref=True):
    """A span of audio."""

    frames: ClassVar[int] = 0

    samples: npt.NDArray[np.int16]  # mono, at `AUDIO_HZ`; shape (N,), int16
    time_s: float  # of the first sample, in seconds since the session began; not negative

    def __post_init__(self) -> None:
        """Check the shape and the time."""
        if self.samples.dtype != np.int16 or self.samples.ndim != 1 or not len(self.samples):
            raise ValueError(f"samples must be (N,) of int16, got {self.samples.shape} of {self.samples.dtype}")
        if not self.time_s >= 0:
            raise ValueError(f"the time must not be negative, got {self.time_s}")

    @property
    def seconds(self) -> float:
        return len(self.samples) / AUDIO_HZ

    @property
    def times_s(self) -> tuple[float, float]:
        return self.time_s, self.time_s + self.seconds

    @cached_property
    def hash(self) -> str:
        """Identify exactly these samples at this time."""
        digest = blake2b(np.ascontiguousarray(self.samples).data, digest_size=16, person=b"audio")
        digest.update(repr(self.time_s).encode())
        return digest.hexdigest()


Item: TypeAlias = FramePair | AudioSpan
