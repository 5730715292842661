"""A description as it is stored, computed from a video's embeddings."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from tasks.description.cost import DescriptionCost
from tasks.description.scenes.change import ChangeKind  # noqa: TC001 - pydantic reads it
from tasks.description.scenes.detect import merge_shots

if TYPE_CHECKING:
    import numpy.typing as npt

    from tasks.description.chunks import EmbeddedChunk
    from tasks.description.pooling import Description
    from tasks.description.scenes.change import SceneChanges
    from tasks.description.scenes.detect import Scene
    from tasks.domain import Job

_MS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkChange:
    """A scene change, as in the rows and in the service's answers."""

    time_s: Annotated[float, Field(description="Seconds since the video's first frame, or of the stream's.")]
    score: Annotated[float, Field(description="Score of the change, whose meaning depends on the method.")]
    chunk: Annotated[int, Field(description="Number of the chunk.")]
    frame: Annotated[int, Field(description="Number of the first sampled frame of the new scene, within the chunk.")]
    kind: Annotated[ChangeKind, Field(description="As `begins` of a scene.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedVideo:
    """The description of a job's video. All times are since the video's first frame."""

    job: Job
    fingerprint: str  # version of the video
    embedding_key: str  # key of the file of its frames' vectors
    dimensions: int  # size of a vector
    shard_index: int
    duration_s: float  # of the video, or of the segment
    frames: int  # number of frames used
    description: Description = field(repr=False)
    changes: SceneChanges = field(repr=False)
    scenes: tuple[Scene, ...] = field(repr=False)  # without gaps from the start to the end
    # Of the frames; shape (frames,), int64.
    pts_ms: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64), repr=False, compare=False)
    was_cached: bool = False  # whether the frames were embedded before
    rewritten: str = ""  # invalid cached files that were replaced, and why
    frame_pixels: int = 0  # maximum pixels of a frame, part of the key of its frame files; 0 if unknown
    decode_method: str = ""  # how the frames were located; empty if they were already embedded
    decode_note: str = ""  # limitations of the frames
    cost: DescriptionCost = field(default_factory=DescriptionCost)  # in this run

    def chunk_changes(self) -> list[ChunkChange]:
        """Return the changes with their chunks; those before the first chunk or after the last one belong to it."""
        chunks = self.description.chunks
        starts_ms = [round(part.chunk.start_s * _MS) for part in chunks[1:]]
        firsts = np.cumsum([0, *(part.frames for part in chunks)])
        found = []
        for change in self.changes.changes:
            chunk = bisect_right(starts_ms, change.pts_ms)
            frame = int(np.searchsorted(self.pts_ms, change.pts_ms) - firsts[chunk])
            found.append(
                ChunkChange(
                    chunk=chunk,
                    frame=min(max(0, frame), max(0, chunks[chunk].frames - 1)),
                    time_s=change.pts_ms / _MS,
                    score=change.score,
                    kind=change.kind,
                )
            )
        return found


def scenes_of(changes: SceneChanges, chunks: tuple[EmbeddedChunk, ...]) -> tuple[Scene, ...]:
    """Merge the shots between changes to scenes; a video of length 0 has none."""
    start_ms, last = chunks[0].start_ms, chunks[-1]
    shown_ms = int(np.max(last.pts_ms, initial=start_ms))
    return merge_shots(
        changes.changes, chunks, start_ms=start_ms, end_ms=max(last.start_ms + last.duration_ms, shown_ms)
    )
