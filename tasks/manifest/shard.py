"""Cutting jobs into shards."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tasks.domain import Shard
from tasks.domain.digest import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tasks.domain import Job

_LARGEST_JOBS = 200


def plan_shards(jobs: Iterable[Job], *, target_jobs: int) -> list[Shard]:
    """Cut jobs into shards of about `target_jobs`, all jobs of one video together.

    The same jobs give the same shards in whatever order they come. Videos are ordered by a hash of
    their URI, so that long and short ones mix; a shard closes as soon as it has `target_jobs`, or
    when the next video would take it past 200. Only the last shard may be smaller than the target
    without need, and only a video with more than 200 jobs of its own makes a larger one.
    """
    by_video: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        by_video[job.video_uri].append(job)
    shards: list[Shard] = []
    pending: list[Job] = []
    for uri in sorted(by_video, key=lambda uri: (digest_of(uri), uri)):
        video = sorted(by_video[uri], key=lambda job: job.job_id)
        if pending and len(pending) + len(video) > _LARGEST_JOBS:
            _close(shards, pending)
            pending = []
        pending += video
        if len(pending) >= target_jobs:
            _close(shards, pending)
            pending = []
    if pending:
        _close(shards, pending)
    return shards


def _close(shards: list[Shard], jobs: Sequence[Job]) -> None:
    shards.append(Shard(index=len(shards), jobs=tuple(jobs)))
