"""Finds groups of near-duplicate videos by the vectors of their frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from reelabel.text import pluralize
from tasks.embedding.vector_file import VectorCache
from tasks.search.local_index import LocalIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from infra.settings import Settings
    from tasks.domain import ModelIdentity
    from tasks.search.local_index import IndexedVideos

_BLOCK_VIDEOS = 1024  # a multiple of 8, for packed bits
_COSINES = 2**24  # in memory at a time: each of two long films has a hundred thousand frames
# Identical vectors have cosines a little below 1, as their components are rounded.
_ROUNDING = 1e-4


class Duplicate(NamedTuple):
    """A video of a group."""

    group: int  # from 0
    video: int
    similarity: float  # to the first video of its group


def similarity(first: npt.NDArray[np.float32], second: npt.NDArray[np.float32]) -> float:
    """Return the similarity of two videos, whatever the order, number and times of their frames.

    It is the mean cosine of each frame with the most similar one of the other video (Chamfer similarity), in the
    direction in which it is smaller: a part of a video is not its duplicate. Videos without frames are not similar.
    """
    if not (len(first) and len(second)):
        return 0.0
    step = max(1, _COSINES // len(second))
    nearest, nearest_of_second = np.empty(len(first), np.float32), np.full(len(second), -np.inf, np.float32)
    for start in range(0, len(first), step):
        cosines = first[start : start + step] @ second.T
        nearest[start : start + step] = cosines.max(axis=1)
        np.maximum(nearest_of_second, cosines.max(axis=0), out=nearest_of_second)
    return float(min(nearest.mean(), nearest_of_second.mean()))


def find_duplicates(
    videos: IndexedVideos,
    *,
    least: float,
    cliques: bool = False,
    sources: npt.NDArray[np.int64] | None = None,
    progress: Callable[[int], None] = lambda _done: None,
) -> list[Duplicate]:
    """Find groups of videos that are connected by similarities of `least`, above 0, or more, to within 1e-4.

    Only videos whose mean vectors have a cosine of at least 1 - 2 (1 - `least`) are compared frame by frame: the means
    of copies that were sampled at different times differ more than their frames. Videos without frames have no
    duplicates, and those with equal numbers in `sources`, as parts and other descriptions of one video have, are not
    compared; shape (videos,). With `cliques`, all videos of a group are that similar to each other, and each video is
    in the first such group that it fits. `progress` is called with the number of videos compared with all others.
    Groups are in the order of their first videos.
    """
    sources = np.arange(len(videos)) if sources is None else sources
    groups = _Groups(videos, least - _ROUNDING)
    for video, near in _near_videos(videos, sources, least - _ROUNDING, progress):
        (groups.join if cliques else groups.connect)(video, near)
    found = sorted(sorted(members) for members in groups.members.values() if len(members) > 1)
    return [
        Duplicate(number, video, similarity(videos[members[0]], videos[video]))
        for number, members in enumerate(found)
        for video in members
    ]


class _Groups:
    """The groups of the videos so far; at first, each video is a group."""

    def __init__(self, videos: IndexedVideos, least: float) -> None:
        self.of = np.arange(len(videos))  # number of the group of each video
        self.members = {number: [number] for number in range(len(videos))}
        self._videos = videos
        self._least = least

    def connect(self, video: int, near: npt.NDArray[np.int64]) -> None:
        """Unite the groups of those of `near` that are similar; of each group, the first such one is enough."""
        while len(near := near[self.of[near] != self.of[video]]):
            similar = next((at for at, other in enumerate(near.tolist()) if self._is_similar(video, other)), None)
            if similar is None:
                return
            self._unite(self.of[video], self.of[near[similar]])
            near = near[similar + 1 :]

    def join(self, video: int, near: npt.NDArray[np.int64]) -> None:
        """Add a video to the first group of which all are similar to it."""
        for group, links in zip(*np.unique(self.of[near], return_counts=True), strict=True):
            members = self.members[group]
            if links == len(members) and all(self._is_similar(video, member) for member in members):
                self._unite(group, self.of[video])
                return

    def _is_similar(self, one: int, other: int) -> bool:
        return similarity(self._videos[one], self._videos[other]) >= self._least

    def _unite(self, one: int, other: int) -> None:
        large, small = sorted((one, other), key=lambda group: -len(self.members[group]))
        moved = self.members.pop(small)
        self.of[moved] = large
        self.members[large] += moved


_GROUPED = {"group": pl.Int64, "key": pl.String, "similarity": pl.Float64}


def group_duplicates(
    settings: Settings,
    model: ModelIdentity,
    files: pl.DataFrame,
    *,
    least: float,
    cliques: bool = False,
    note: Callable[[str], None],
    warn: Callable[[str], None],
) -> pl.DataFrame:
    """Find the groups of near-duplicates among embedding files, with the local index, which is updated.

    `files` has the columns of `FILES`; `least` and `cliques` are as in `find_duplicates`. `note` is called with the
    current step, and `warn` with a clause on files that cannot be read.

    Return the files of all groups, with the columns `group`, from 0, `key`, and `similarity` to the first of its group.
    """
    note("Opening the index")
    index = LocalIndex(settings.home / "search", model)
    if missing := index.missing(files["key"]):
        note(f"Indexing {pluralize(len(missing), 'new video')}")
        if refused := index.add(missing, VectorCache.of(settings.store)):
            key, why = next(iter(refused.items()))
            warn(f"{pluralize(len(refused), 'embedding file')} cannot be read, such as {key}: {why}")
    found = find_duplicates(
        index.videos(files["key"]),
        least=least,
        cliques=cliques,
        sources=files["video"].to_numpy(),
        progress=lambda done: note(f"Comparing videos: {done:,} of {len(files):,}"),
    )
    rows = [(each.group, files["key"][each.video], each.similarity) for each in found]
    return pl.DataFrame(rows, schema=_GROUPED, orient="row")


def _near_videos(
    videos: IndexedVideos, sources: npt.NDArray[np.int64], least: float, progress: Callable[[int], None]
) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Yield each video, and those before it whose mean vectors are near enough for a similarity of `least`."""
    means = _mean_vectors(videos)
    starts = range(0, len(means), _BLOCK_VIDEOS)
    for start in starts:
        rows = slice(start, start + _BLOCK_VIDEOS)
        packed = []  # a bit for each pair: all may be near
        for other_start in starts[: start // _BLOCK_VIDEOS + 1]:
            columns = slice(other_start, other_start + _BLOCK_VIDEOS)
            is_near = means[rows] @ means[columns].T >= 2 * least - 1
            is_near &= sources[rows, None] != sources[None, columns]
            packed.append(np.packbits(is_near, axis=1))
        bits = np.hstack(packed)
        for row in np.flatnonzero(bits.any(axis=1)).tolist():
            video = start + row
            if len(near := np.flatnonzero(np.unpackbits(bits[row], count=video))):
                yield video, near
        progress(min(len(means), start + _BLOCK_VIDEOS))


def _mean_vectors(videos: IndexedVideos) -> npt.NDArray[np.float32]:
    """Return the mean vector of each video, of length 1; of zeros if it has no frames. Shape (videos, D)."""
    if not len(videos):
        return np.zeros((0, 1), np.float32)
    sums = np.stack([videos[number].sum(axis=0) for number in range(len(videos))])
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    means: npt.NDArray[np.float32] = np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)
    return means
