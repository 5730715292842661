"""Types of scene detection: changes, moving averages, thumbnails."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from reelabel.errors import ReelabelError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class SceneMethodError(ReelabelError):
    """Cuts cannot be detected in a video; only its embeddings are used."""


ChangeKind: TypeAlias = Literal["cut", "gradual", "sampled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneChange:
    """One change.

    Attributes:
        pts_ms: Time of the first sampled frame of the new scene, in milliseconds.
        score: Score of the change, whose meaning depends on the method.
        since_ms: Time of the last sampled frame of the old scene; the change lies between the two.
        kind: A hard cut, exact to the frame; a gradual change, accurate to the time between two embedded frames, about
            half a second; or `sampled`, equally accurate, which may be either.
    """

    pts_ms: int
    score: float
    since_ms: int
    kind: ChangeKind = "sampled"


class Average(NamedTuple):
    """The moving average of a video's embeddings, carried from chunk to chunk.

    Attributes:
        vector: The normalised average; shape (D,), float32.
        last_ms: Time of the last frame that went into it.
        was_change: Whether that frame was a change: a change right after it belongs to the same transition.
    """

    vector: npt.NDArray[np.float32]
    last_ms: int
    was_change: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneChanges:
    """Scene changes that a detector found in one video.

    Attributes:
        changes: The changes, in order of time.
        method: The method that found them; for `auto`, the one that it chose.
        note: Limitations in this video, in a sentence; empty if none.
        average: The moving average after the last frame, for the next part of a stream; None without.
    """

    changes: tuple[SceneChange, ...]
    method: str
    note: str = ""
    average: Average | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Thumbnails:
    """Small frames of a video.

    Attributes:
        images: RGB pixels; shape (N, H, W, 3), uint8.
        times_ms: Their times in milliseconds, ascending; shape (N,), int64.
    """

    images: npt.NDArray[np.uint8]
    times_ms: npt.NDArray[np.int64]
