"""Split jobs into shards."""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise, starmap
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tasks.domain import MAX_JOBS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_SMALLEST_JOBS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardBatch:
    """Consecutive shards.

    Attributes:
        rows: Their jobs, shard after shard, with jobs on one video adjacent.
        sizes: Number of jobs per shard, in order.
    """

    rows: pl.DataFrame
    sizes: Sequence[int]


def split_into_shards(parts: Iterable[pl.DataFrame], *, target_jobs: int) -> Iterator[ShardBatch]:
    """Split jobs into shards of about `target_jobs`, keeping the jobs on a video together where they fit.

    The same jobs yield the same shards, whatever their order in the manifest. Videos with neighbouring names share a
    shard, so that one listing covers all of them. Shards are ordered by a hash, so that folders of long and short
    videos mix, and a run's rate predicts its remaining time. Every shard has 50 to 200 jobs, except the last, which may
    be smaller; it closes as soon as it has `target_jobs`. A video with more than 200 jobs has shards of its own, of
    nearly the same size.

    Yields:
        The shards that each part completes, in order.
    """
    remainder = pl.DataFrame()
    for part in parts:
        rows = part.sort("video_uri", "job_id")
        videos = rows.select(pl.col("video_uri").rle().struct.field("len")).to_series()
        jobs = pl.concat([remainder, rows]) if len(remainder) else rows
        shards, open_shard = _cut([*videos], begun=len(remainder), target_jobs=target_jobs)
        if shards:
            uris = jobs["video_uri"]
            shards.sort(key=lambda shard: sha256(uris[shard[0].start].encode()).digest())
            sizes = [sum(map(len, shard)) for shard in shards]
            # One gather for all shards: one per shard would take several times as long as everything else.
            yield ShardBatch(rows=_take(jobs, [video for shard in shards for video in shard]), sizes=sizes)
        remainder = _take(jobs, open_shard)
    if len(remainder):
        yield ShardBatch(rows=remainder, sizes=[len(remainder)])


def _cut(videos: Sequence[int], *, begun: int, target_jobs: int) -> tuple[list[list[range]], list[range]]:
    """Group consecutive videos, given their numbers of jobs; `begun` jobs of an open shard precede them.

    Returns:
        The complete shards as ranges of rows, and the ranges of the shard that is still open.
    """
    shards: list[list[range]] = []
    group, size, place = [range(begun)] if begun else [], begun, begun
    for jobs in videos:
        video = range(place, place + jobs)
        place += jobs
        if jobs > MAX_JOBS:
            shards += [[piece] for piece in _pieces(video, target_jobs=target_jobs)]
        elif size + jobs <= MAX_JOBS:
            group.append(video)
            size += jobs
        elif size >= _SMALLEST_JOBS:
            shards.append(group)
            group, size = [video], jobs
        else:
            shards.append([video])  # large enough for a shard of its own; the small group keeps growing
        if size >= target_jobs:
            shards.append(group)
            group, size = [], 0
    return shards, group


def _pieces(video: range, *, target_jobs: int) -> Iterator[range]:
    """Split the rows of a large video into pieces of nearly the same size, for a shard each."""
    count = max(len(video) // target_jobs, math.ceil(len(video) / MAX_JOBS))
    edges = [video.start + len(video) * piece // count for piece in range(count + 1)]
    return starmap(range, pairwise(edges))


def _take(jobs: pl.DataFrame, videos: Sequence[range]) -> pl.DataFrame:
    places = [np.arange(each.start, each.stop, dtype=np.uint32) for each in videos]
    return jobs[np.concatenate([np.empty(0, np.uint32), *places])]
