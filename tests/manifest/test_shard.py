import random
from collections import Counter
from itertools import accumulate, groupby

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.domain import Shard
from tasks.manifest.digests import rows_to_jobs
from tasks.manifest.plan_file import split_into_shards
from tests.factories import make_job
from tests.job_table import job_table


def jobs_of_videos(counts):
    return [
        make_job(f"v{video}/clip.mp4", job_id=f"{video}-{number}")
        for video, count in enumerate(counts)
        for number in range(count)
    ]


def plan_shards(jobs, *, target_jobs, parts=1):
    """Cut jobs that come in so many parts."""
    [table] = job_table(jobs).parts()
    part = table.select(pl.col("locality_hash") // 2**32 * parts // 2**32).to_series()
    split = [table.filter(part == number) for number in range(parts)]
    cut = split_into_shards((rows for rows in split if len(rows)), target_jobs=target_jobs)
    shards = (
        each.rows[end - size : end]
        for each in cut
        for size, end in zip(each.sizes, accumulate(each.sizes), strict=True)
    )
    return [Shard(index=index, jobs=tuple(rows_to_jobs(rows))) for index, rows in enumerate(shards)]


COUNTS = st.lists(st.integers(1, 250), min_size=1, max_size=12)


@settings(max_examples=25)
@given(counts=COUNTS, target=st.integers(50, 200), seed=st.integers(0, 9))
def test_shards_are_the_same_in_any_order(counts, target, seed):
    jobs = jobs_of_videos(counts)
    shuffled = random.Random(seed).sample(jobs, len(jobs))

    assert plan_shards(jobs, target_jobs=target) == plan_shards(shuffled, target_jobs=target)


def test_neighbours_share_a_shard_and_shards_are_shuffled():
    jobs = [make_job(f"v{n:04}.mp4") for n in range(1000)]

    shards = plan_shards(jobs, target_jobs=100)

    firsts = [int(shard.video_uris[0][1:5]) for shard in shards]
    assert sorted(firsts) == list(range(0, 1000, 100))
    assert firsts != sorted(firsts)
    for first, shard in zip(firsts, shards, strict=True):
        assert list(shard.video_uris) == [f"v{n:04}.mp4" for n in range(first, first + 100)]


@settings(max_examples=25)
@given(counts=COUNTS, target=st.integers(50, 200), parts=st.integers(2, 9))
def test_jobs_read_in_parts_are_complete_and_in_shards_of_the_same_sizes(counts, target, parts):
    jobs = jobs_of_videos(counts)

    shards = plan_shards(jobs, target_jobs=target, parts=parts)

    assert sorted(job.job_id for shard in shards for job in shard.jobs) == sorted(job.job_id for job in jobs)
    assert all(50 <= len(shard.jobs) <= 200 for shard in shards[:-1])


def test_the_division_into_shards_is_pinned():
    shards = plan_shards(jobs_of_videos([40, 90, 70, 180, 30, 300, 60, 10, 120]), target_jobs=100)

    assert [("".join(uri[:2] for uri in shard.video_uris), len(shard.jobs)) for shard in shards] == [
        ("v0v1", 130),
        ("v5", 100),
        ("v5", 100),
        ("v5", 100),
        ("v3", 180),
        ("v8", 120),
        ("v4v6v7", 100),
        ("v2", 70),
    ]


LARGE_COUNTS = st.lists(st.integers(1, 250) | st.integers(200, 900), min_size=1, max_size=6)


@settings(max_examples=25)
@given(counts=LARGE_COUNTS, target=st.integers(50, 200))
def test_every_job_is_in_one_shard_and_only_large_videos_are_in_several(counts, target):
    shards = plan_shards(jobs_of_videos(counts), target_jobs=target)

    ids = [job.job_id for shard in shards for job in shard.jobs]
    assert sorted(ids) == sorted(job.job_id for job in jobs_of_videos(counts))
    found = Counter(uri for shard in shards for uri in shard.video_uris)
    assert len(found) == len(counts)
    for uri, times in found.items():
        jobs = counts[int(uri[1:].partition("/")[0])]
        own = [len(shard.jobs) for shard in shards if uri in shard.video_uris]
        assert times == 1 if jobs <= 200 else max(own) - min(own) <= 1


@settings(max_examples=25)
@given(counts=COUNTS, seed=st.integers(0, 9))
def test_jobs_on_one_video_are_adjacent(counts, seed):
    jobs = jobs_of_videos(counts)
    random.Random(seed).shuffle(jobs)

    for shard in plan_shards(jobs, target_jobs=100):
        assert [uri for uri, _ in groupby(shard.jobs, lambda job: job.video_uri)] == list(shard.video_uris)


@settings(max_examples=25)
@given(counts=LARGE_COUNTS, target=st.integers(50, 200))
def test_shards_hold_50_to_200_jobs_except_the_last(counts, target):
    shards = plan_shards(jobs_of_videos(counts), target_jobs=target)

    assert sum(len(shard.jobs) < 50 for shard in shards) <= 1
    assert all(len(shard.jobs) <= 200 for shard in shards)


@pytest.mark.parametrize(
    ("jobs", "target", "sizes"),
    [(201, 200, [100, 101]), (201, 50, [50, 50, 50, 51]), (500, 100, [100] * 5), (20_000, 100, [100] * 200)],
)
def test_a_video_with_too_many_jobs_for_one_shard_is_in_several_of_similar_size(jobs, target, sizes):
    shards = plan_shards(jobs_of_videos([jobs]), target_jobs=target)

    assert [len(shard.jobs) for shard in shards] == sizes
