"""Cutting jobs into shards."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_SMALLEST_JOBS = 50
_LARGEST_JOBS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeShards:
    """Shards, one behind the other.

    Attributes:
        rows: Their jobs, those of one video side by side.
        sizes: How many jobs each of them has, in order.
    """

    rows: pl.DataFrame
    sizes: Sequence[int]


def cut_shards(parts: Iterable[pl.DataFrame], *, target_jobs: int) -> Iterator[WholeShards]:
    """Cut jobs into shards of about `target_jobs`, all jobs of one video together.

    The same jobs give the same shards in whatever order the manifest has them. Videos that stand close together
    in their store share a shard, so that one listing looks at all of them; shards follow each other by a hash, so
    that folders of long and of short videos mix, and a run's rate tells how long it will take. Every shard holds
    50 to 200 jobs, but for the last, which may be smaller, and a video with more than 200 jobs of its own, which
    is one shard alone.

    Args:
        parts: The jobs to cut, as `JobTable.parts` gives them, or some of them.
        target_jobs: A shard closes as soon as it has this many; 50 to 200.

    Yields:
        The shards that each part completes, in order.
    """
    rest = pl.DataFrame()
    for part in parts:
        rows = part.sort("video_uri", "job_id")
        videos = rows.select(pl.col("video_uri").rle().struct.field("len")).to_series()
        jobs = pl.concat([rest, rows]) if len(rest) else rows
        shards, still_open = _cut([*videos], begun=len(rest), target_jobs=target_jobs)
        if shards:
            uris = jobs["video_uri"]
            shards.sort(key=lambda shard: sha256(uris[shard[0].start].encode()).digest())
            sizes = [sum(map(len, shard)) for shard in shards]
            # All at once: to gather each shard's rows by themselves takes several times as long as all else.
            yield WholeShards(rows=_take(jobs, [video for shard in shards for video in shard]), sizes=sizes)
        rest = _take(jobs, still_open)
    if len(rest):
        yield WholeShards(rows=rest, sizes=[len(rest)])


def _cut(videos: Sequence[int], *, begun: int, target_jobs: int) -> tuple[list[list[range]], list[range]]:
    """Group videos by their numbers of jobs, which stand in a row behind the `begun` ones of an open shard.

    Returns:
        The shards as ranges of places, and those of the shard that is still open.
    """
    shards: list[list[range]] = []
    group, size, place = [range(begun)], begun, begun
    for jobs in videos:
        video = range(place, place + jobs)
        place += jobs
        if size + jobs <= _LARGEST_JOBS:
            group.append(video)
            size += jobs
        elif size >= _SMALLEST_JOBS:
            shards.append(group)
            group, size = [video], jobs
        else:
            shards.append([video])  # large enough to stand alone, while the small group goes on growing
        if size >= target_jobs:
            shards.append(group)
            group, size = [], 0
    return shards, group


def _take(jobs: pl.DataFrame, videos: Sequence[range]) -> pl.DataFrame:
    """Copy the rows of videos, each given as the range of its places."""
    places = [np.arange(each.start, each.stop, dtype=np.uint32) for each in videos]
    return jobs[np.concatenate([np.empty(0, np.uint32), *places])]
