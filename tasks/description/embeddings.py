"""The embeddings of one video's frames, and the cuts between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


class CutCandidate(NamedTuple):
    """A change between two frames that is a cut if it is strong enough."""

    pts_ms: int  # of the first frame of the new scene
    since_ms: int  # of the frame before it
    difference: float  # mean absolute difference of the two, of 255
    # The difference, or the smallest one when the frames are shifted against each other; scaled to usual contrast in a
    # video of low contrast.
    strength: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuts:
    """The candidates of a video whose pixels look like cuts, for all thresholds."""

    candidates: tuple[CutCandidate, ...] | None  # in order of time; None if they cannot be detected
    note: str = ""  # limitations, in a sentence

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Cuts:
        """Restore cuts from a file; raises a KeyError or a TypeError if it has others."""
        known = value["candidates"]
        return cls(candidates=known and tuple(CutCandidate(*each) for each in known), note=str(value["note"]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Embeddings:
    vectors: npt.NDArray[np.float32] = field(repr=False)  # one L2-normalised vector per frame; shape (N, D), float32
    # True times of the frames in milliseconds since the video's first frame, strictly increasing; shape (N,), int64.
    pts_ms: npt.NDArray[np.int64] = field(repr=False)
    first_ms: int = 0  # time of the video's first frame on its own clock, in milliseconds
    duration_s: float = 0.0  # length in seconds of the video, or of the segment that the frames are of; 0 if unknown
    note: str = ""  # limitations, as a clause: how the video was decoded, or where it is truncated; empty if none
    # The cuts between its frames, for all thresholds; None until they are detected.
    cuts: Cuts | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or self.pts_ms.shape != self.vectors.shape[:1]:  # noqa: PLR2004
            raise ValueError(f"vectors {self.vectors.shape} do not match times {self.pts_ms.shape}")
        if not np.isfinite(self.vectors).all():
            raise ValueError("vectors are not finite")
        if (np.diff(self.pts_ms) <= 0).any():
            raise ValueError("times do not increase")


def normalize(vectors: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """Scale vectors to length 1; a zero vector stays zero. Any shape (..., D)."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: npt.NDArray[np.float32] = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return scaled
