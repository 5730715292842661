import random

from hypothesis import given
from hypothesis import strategies as st

from tasks.domain import Job
from tasks.manifest.shard import plan_shards


def jobs_of(counts):
    return [
        Job(job_id=f"{video}-{number}", video_uri=f"v{video}.mp4", prompt="?", choices=("a", "b"))
        for video, count in enumerate(counts)
        for number in range(count)
    ]


COUNTS = st.lists(st.integers(1, 250), min_size=1, max_size=60)


@given(counts=COUNTS, target=st.integers(50, 200), seed=st.integers(0, 9))
def test_shards_are_the_same_in_any_order(counts, target, seed):
    jobs = jobs_of(counts)
    shuffled = random.Random(seed).sample(jobs, len(jobs))

    assert plan_shards(jobs, target_jobs=target) == plan_shards(shuffled, target_jobs=target)


@given(counts=COUNTS, target=st.integers(50, 200))
def test_every_job_is_in_one_shard_and_videos_stay_together(counts, target):
    shards = plan_shards(jobs_of(counts), target_jobs=target)

    ids = [job.job_id for shard in shards for job in shard.jobs]
    assert sorted(ids) == sorted(job.job_id for job in jobs_of(counts))
    videos = [uri for shard in shards for uri in shard.video_uris]
    assert len(videos) == len(set(videos)) == len(counts)


@given(counts=COUNTS, target=st.integers(50, 200))
def test_shards_hold_50_to_200_jobs_but_for_the_last_and_for_large_videos(counts, target):
    *full, last = plan_shards(jobs_of(counts), target_jobs=target)

    assert all(len(shard.jobs) >= 50 for shard in full)
    assert all(len(shard.jobs) <= 200 or len(shard.video_uris) == 1 for shard in [*full, last])


def test_a_video_with_more_jobs_than_a_shard_stays_whole():
    shards = plan_shards(jobs_of([500]), target_jobs=100)

    assert [len(shard.jobs) for shard in shards] == [500]
