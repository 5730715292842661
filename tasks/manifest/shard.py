"""Cutting jobs into shards."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING

from tasks.domain import Shard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tasks.domain import Job

_SMALLEST_JOBS = 50
_LARGEST_JOBS = 200


def plan_shards(jobs: Iterable[Job], *, target_jobs: int) -> list[Shard]:
    """Cut jobs into shards of about `target_jobs`, all jobs of one video together.

    The same jobs give the same shards in whatever order they come. Videos are ordered by a hash of
    their URI, so that long and short ones mix. Every shard holds 50 to 200 jobs, but for the last,
    which may be smaller, and a video with more than 200 jobs of its own, which is one shard alone.

    Args:
        jobs: The jobs to cut.
        target_jobs: A shard closes as soon as it has this many; 50 to 200.
    """
    by_video: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        by_video[job.video_uri].append(job)
    videos = (sorted(by_video[uri], key=_job_id) for uri in sorted(by_video, key=_order))
    return [Shard(index=index, jobs=tuple(group)) for index, group in enumerate(_groups(videos, target_jobs))]


def _groups(videos: Iterable[list[Job]], target_jobs: int) -> Iterator[list[Job]]:
    group: list[Job] = []
    for video in videos:
        if len(group) + len(video) <= _LARGEST_JOBS:
            group += video
        elif len(group) >= _SMALLEST_JOBS:
            yield group
            group = video
        else:
            yield video  # large enough to stand alone, while the small group goes on growing
        if len(group) >= target_jobs:
            yield group
            group = []
    if group:
        yield group


def _order(uri: str) -> tuple[bytes, str]:
    return hashlib.blake2b(uri.encode(), digest_size=8).digest(), uri


def _job_id(job: Job) -> str:
    return job.job_id
