"""The frames of a session as models take them: pairs, each a video of two frames at their true times."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

# Models with videos of several frames encode them in pairs, each by itself.
FRAMES_PER_ITEM = 2
_RGB = 3


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


class Pairs:
    """Pairs frames as they come; a frame of another size begins a new pair."""

    def __init__(self) -> None:
        """Start with none."""
        self._alone: LiveItem | None = None

    @property
    def alone(self) -> LiveItem | None:
        """The last frame if it has no partner yet, shown twice, as models pad a video with an odd number of frames."""
        return self._alone

    def add(self, image: npt.NDArray[np.uint8], time_s: float) -> tuple[LiveItem, ...]:
        """Add a frame.

        Args:
            image: Shape (H, W, 3), uint8; kept, so it must not change.
            time_s: Seconds since the session began; not before the last frame's.

        Returns:
            The pairs that are now complete: one for every second frame; a frame whose successor has another size stays
            a pair with itself.
        """
        alone = self._alone
        if alone is not None and alone.images.shape[1:] == image.shape:
            self._alone = None
            return (LiveItem(images=np.stack([alone.images[0], image]), times_s=(alone.times_s[0], time_s)),)
        self._alone = LiveItem(images=np.stack([image, image]), times_s=(time_s, time_s), frames=1)
        return () if alone is None else (alone,)


def pair_up(frames: Iterable[tuple[npt.NDArray[np.uint8], float]]) -> tuple[LiveItem, ...]:
    """Return frames, each with its time, as pairs; the last one may be alone."""
    pairs = Pairs()
    items = [item for image, time_s in frames for item in pairs.add(image, time_s)]
    return (*items, *((pairs.alone,) if pairs.alone else ()))
