"""Changes of scene, and what they are found in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from reelabel.errors import ReelabelError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class SceneMethodError(ReelabelError):
    """Cuts cannot be looked for in a video; its embeddings alone decide."""


ChangeKind: TypeAlias = Literal["cut", "gradual", "sampled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneChange:
    """One change.

    Attributes:
        pts_ms: Time of the first frame that was seen of the new scene, in milliseconds.
        score: How sure it is; what it measures depends on the method.
        since_ms: Time of the last frame that was seen of the old scene; the change lies between the two.
        kind: A hard cut, exact to the frame; a gradual change, known to the time between two embedded frames, about
            half a second; or `sampled`, as exact, either of the two.
    """

    pts_ms: int
    score: float
    since_ms: int
    kind: ChangeKind = "sampled"


class Average(NamedTuple):
    """The moving average of a video's embeddings, as it is carried from chunk to chunk.

    Attributes:
        vector: The normalised average; shape (D,), float32.
        last_ms: Time of the last frame that went into it.
        was_change: Whether that frame was a change: what follows at once is the rest of the same transition.
    """

    vector: npt.NDArray[np.float32]
    last_ms: int
    was_change: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneChanges:
    """What a detector says of one video.

    Attributes:
        changes: The changes, in order of time.
        method: The method that found them; for `auto`, the one that it chose.
        note: What limits them in this video, in a sentence; empty if nothing does.
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
