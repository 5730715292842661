"""What a session shows its model: pairs of frames, each a video of two at their true times, and spans of audio."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

# Models with videos of several frames encode them in pairs, each by itself.
FRAMES_PER_ITEM = 2
_RGB = 3
AUDIO_HZ = 16_000
# The encoder of Qwen2.5-Omni attends within two seconds, and its prompts alternate between two seconds of frames and
# two of audio.
SPAN_S = 2.0
_SHORTEST = AUDIO_HZ // 10  # samples; the encoder makes no token of less than 30 ms
TOLERANCE_S = 0.5  # by which clocks may differ within a span
# Ends the name of a video of frames that a session kept: the model is shown each pair at its own time, as it was then.
FOOTAGE = ".footage.mkv"


@dataclass(frozen=True, kw_only=True, eq=False)
class LiveItem:
    """Two consecutive kept frames.

    Attributes:
        images: RGB pixels as the model sees them; shape (2, H, W, 3), uint8.
        times_s: When each was taken, in seconds since the session began; not decreasing, and not negative.
        frames: How many different frames these are: 1 if the last one is still alone, and shown twice.
    """

    images: npt.NDArray[np.uint8] = field(repr=False)
    times_s: tuple[float, float]
    frames: int = FRAMES_PER_ITEM

    def __post_init__(self) -> None:
        """Check the shape and the times."""
        shape = self.images.shape
        if self.images.dtype != np.uint8 or len(shape) != 4 or shape[0] != FRAMES_PER_ITEM or shape[-1] != _RGB:  # noqa: PLR2004
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


@dataclass(frozen=True, kw_only=True, eq=False)
class AudioItem:
    """A span of audio.

    Attributes:
        samples: Mono, at `AUDIO_HZ`; shape (N,), int16.
        time_s: Of the first sample, in seconds since the session began; not negative.
    """

    frames: ClassVar[int] = 0

    samples: npt.NDArray[np.int16] = field(repr=False)
    time_s: float

    def __post_init__(self) -> None:
        """Check the shape and the time."""
        if self.samples.dtype != np.int16 or self.samples.ndim != 1 or not len(self.samples):
            raise ValueError(f"samples must be (N,) of int16, got {self.samples.shape} of {self.samples.dtype}")
        if not self.time_s >= 0:
            raise ValueError(f"the time must not be negative, got {self.time_s}")

    @property
    def seconds(self) -> float:
        """How long it is."""
        return len(self.samples) / AUDIO_HZ

    @property
    def times_s(self) -> tuple[float, float]:
        """When it begins and ends."""
        return self.time_s, self.time_s + self.seconds

    @cached_property
    def hash(self) -> str:
        """Identify exactly these samples at this time."""
        digest = blake2b(np.ascontiguousarray(self.samples).data, digest_size=16, person=b"audio")
        digest.update(repr(self.time_s).encode())
        return digest.hexdigest()


Item: TypeAlias = LiveItem | AudioItem


class Spans:
    """Cuts audio into spans as it comes.

    Attributes:
        end_s: Where the audio ends so far, in seconds since the session began.
    """

    def __init__(self) -> None:
        """Start with none."""
        self.end_s = 0.0
        self._begin_s = 0.0  # of the span that is still open
        self._open: list[npt.NDArray[np.int16]] = []
        self._samples = 0

    @property
    def open(self) -> AudioItem | None:
        """The span that is not complete, if there is one."""
        if not self._samples:
            return None
        samples = np.concatenate(self._open)
        return AudioItem(samples=np.pad(samples, (0, max(0, _SHORTEST - len(samples)))), time_s=self._begin_s)

    def add(self, samples: npt.NDArray[np.int16], time_s: float) -> tuple[AudioItem, ...]:
        """Add audio.

        Args:
            samples: Shape (N,), int16; kept, so it must not change.
            time_s: Of the first one, in seconds since the session began. Audio that begins within half a second of the
                end of what came before goes on from there; later audio begins a span of its own.

        Returns:
            The spans that are complete now.
        """
        complete = self.cut() if abs(time_s - self.end_s) > TOLERANCE_S else ()
        if not self._samples and (complete or time_s > self.end_s):
            self.end_s = time_s
        while len(samples):
            if not self._samples:
                self._begin_s = self.end_s
            head, samples = np.split(samples, [round(SPAN_S * AUDIO_HZ) - self._samples])
            self._open.append(head)
            self._samples += len(head)
            self.end_s = self._begin_s + self._samples / AUDIO_HZ
            if self._samples == round(SPAN_S * AUDIO_HZ):
                complete += self.cut()
        return complete

    def cut(self, until_s: float = float("inf")) -> tuple[AudioItem, ...]:
        """End the open span, if its two seconds are over at a time; return it."""
        span = self.open
        if span is None or self._begin_s + SPAN_S > until_s:
            return ()
        self._open, self._samples = [], 0
        return (span,)


class Pairs:
    """Pairs frames as they come; a frame of another size begins a new pair.

    Attributes:
        alone: The last frame if it has no partner yet, shown twice, as models pad a video with an odd number of frames.
    """

    def __init__(self) -> None:
        """Start with none."""
        self.alone: LiveItem | None = None

    def add(self, image: npt.NDArray[np.uint8], time_s: float) -> tuple[LiveItem, ...]:
        """Add a frame.

        Args:
            image: Shape (H, W, 3), uint8; kept, so it must not change.
            time_s: Seconds since the session began; not before the last frame's.

        Returns:
            The pairs that are now complete: one for every second frame; a frame whose successor has another size stays
            a pair with itself.
        """
        alone = self.alone
        if alone is not None and alone.images.shape[1:] == image.shape:
            self.alone = None
            return (LiveItem(images=np.stack([alone.images[0], image]), times_s=(alone.times_s[0], time_s)),)
        self.alone = LiveItem(images=np.stack([image, image]), times_s=(time_s, time_s), frames=1)
        return () if alone is None else (alone,)


def pair_up(frames: Iterable[tuple[npt.NDArray[np.uint8], float]]) -> tuple[LiveItem, ...]:
    """Return frames, each with its time, as pairs; the last one may be alone."""
    pairs = Pairs()
    items = [item for image, time_s in frames for item in pairs.add(image, time_s)]
    return (*items, *((pairs.alone,) if pairs.alone else ()))
