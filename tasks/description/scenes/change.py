"""What a scene detector finds, and what it finds it in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from reelabel.errors import ReelabelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from reelabel.index import VideoIndex
    from reelabel.segment import Windows


class SceneMethodError(ReelabelError):
    """A method cannot be used for a video, or is not installed; another one can."""


class SceneAttemptError(SceneMethodError):
    """What a method needs has failed this time; the same video may be looked into later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneChange:
    """One change.

    Attributes:
        pts_ms: Time of the first frame that was seen of the new scene, in milliseconds.
        score: How sure it is; what it measures depends on the method.
        since_ms: Time of the last frame that was seen of the old scene; the change lies between the two.
    """

    pts_ms: int
    score: float
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneChanges:
    """What a detector says of one video.

    Attributes:
        changes: The changes, in order of time.
        method: The method that found them; for `auto`, the one that it chose.
        note: What limits them in this video, in a sentence; empty if nothing does.
    """

    changes: tuple[SceneChange, ...]
    method: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EmbeddedChunk:
    """The embeddings of one chunk of a video.

    Attributes:
        start_ms: Where it starts.
        duration_ms: How long it is.
        vectors: L2-normalised vectors of its frames; shape (T, D), float32; T may be 0.
        pts_ms: Their true times in milliseconds, ascending; shape (T,), int64.
    """

    start_ms: int
    duration_ms: int
    vectors: npt.NDArray[np.float32]
    pts_ms: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or self.pts_ms.shape != self.vectors.shape[:1]:  # noqa: PLR2004
            raise ValueError(f"vectors must be (T, D) and pts_ms (T,), got {self.vectors.shape}, {self.pts_ms.shape}")
        if not np.isfinite(self.vectors).all():
            raise ValueError("an embedding is not finite")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Thumbnails:
    """Small frames of a video.

    Attributes:
        images: RGB pixels; shape (N, H, W, 3), uint8.
        times_ms: Their times in milliseconds, ascending; shape (N,), int64.
    """

    images: npt.NDArray[np.uint8]
    times_ms: npt.NDArray[np.int64]


class PossibleCut(NamedTuple):
    """A change between two frames that is a cut if it is strong enough.

    Attributes:
        pts_ms: Time of the first frame of the new scene.
        since_ms: Time of the frame before it.
        difference: Mean absolute difference of the two, of 255.
        strength: The same, or what remains of it when the two are shifted against each other, if that is less.
    """

    pts_ms: int
    since_ms: int
    difference: float
    strength: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexLook:
    """What a look at the candidates of a video's index has shown, whatever the threshold.

    Attributes:
        cuts: The possible cuts, in order of time.
        note: What limits them, in a sentence; empty if nothing does.
    """

    cuts: tuple[PossibleCut, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrameScores:
    """What a method has computed for every frame of a video, whatever the threshold.

    Attributes:
        times_ms: Times of the frames in milliseconds, ascending; shape (N,), int64.
        scores: What the method compares with its threshold, or computes that from; shape (N,), float64.
    """

    times_ms: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.times_ms.ndim != 1 or self.times_ms.shape != self.scores.shape:
            raise ValueError(f"times_ms and scores must be (N,) alike, got {self.times_ms.shape}, {self.scores.shape}")
        if not np.isfinite(self.scores).all():
            raise ValueError("a score is not finite")


class Footage(Protocol):
    """A video that detectors may look into."""

    def packets(self) -> VideoIndex:
        """List the packets, without decoding.

        Raises:
            SceneMethodError: The container does not list them.
        """

    def thumbnails(self, windows: Windows) -> Thumbnails:
        """Decode every frame in some windows, in seconds since the first frame, at about 48 x 27 pixels."""

    def every_frame(self, *, width_px: int, height_px: int) -> Iterator[Thumbnails]:
        """Decode every frame, piece by piece, at about a size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a detector may use; its record says what it needs.

    Attributes:
        footage: The video itself; None if only its embeddings are at hand.
        look: Returns what a look at the candidates of the index shows, now or earlier; None takes that look. Raises as
            `tasks.description.scenes.index.look_at_candidates`.
        keep_scores: Returns the scores that a method, by name, has given to every frame, now, by calling what it is
            given, or earlier; None keeps none.
        chunks: The embeddings of its frames, chunk by chunk, in order of time.
    """

    footage: Footage | None = None
    look: Callable[[], IndexLook] | None = None
    keep_scores: Callable[[str, Callable[[], FrameScores]], FrameScores] | None = None
    chunks: tuple[EmbeddedChunk, ...] = field(default=())
