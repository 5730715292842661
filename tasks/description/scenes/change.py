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
    """A change between two sampled frames."""

    pts_ms: int  # of the first frame of the new scene
    score: float  # its meaning depends on the method
    since_ms: int  # of the last frame of the old scene
    # A hard cut, exact to the frame; a gradual change, accurate to the time between two embedded frames, about half a
    # second; or `sampled`, equally accurate, which may be either.
    kind: ChangeKind = "sampled"


class Average(NamedTuple):
    """The moving average of a video's embeddings, carried from chunk to chunk."""

    vector: npt.NDArray[np.float32]  # normalised; shape (D,), float32
    last_ms: int  # time of the last frame that went into it
    was_change: bool = False  # whether that frame was a change: one right after it belongs to the same transition


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneChanges:
    """The scene changes of one video, in order of time."""

    changes: tuple[SceneChange, ...]
    method: str  # that found them; for `auto`, the one that it chose
    note: str = ""  # limitations in this video, in a sentence
    average: Average | None = field(default=None, repr=False, compare=False)  # for the next part of a stream


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Thumbnails:
    images: npt.NDArray[np.uint8]  # RGB; shape (N, H, W, 3), uint8
    times_ms: npt.NDArray[np.int64]  # ascending; shape (N,), int64
