"""Jobs that share a video depend on each other, however many videos each of them shows."""

import random

from tasks.domain import Job, Medium, cluster_by_videos


def job(*videos, images=()):
    shown = tuple(Medium("image", uri) for uri in images) + tuple(Medium("video", uri) for uri in videos)
    media = shown if len(shown) > 1 else None
    return Job(job_id="j", video_uri=videos[0], prompt="?", choices=("yes", "no"), media=media)


def test_jobs_that_share_any_video_are_in_one_cluster():
    both, other, alone = job("a", "b"), job("c", "b"), job("d")

    clusters = cluster_by_videos([both, other, alone, job("c")])

    assert clusters == ["a", "a", "d", "a"]


def test_an_image_that_every_job_shows_links_none():
    assert cluster_by_videos([job("a", images=["logo"]), job("b", images=["logo"])]) == ["a", "b"]


def test_clusters_do_not_depend_on_the_order_of_jobs():
    rng = random.Random(1)
    jobs = [job(*(f"v{rng.randrange(60)}" for _ in range(rng.randint(1, 3)))) for _ in range(40)]
    found = dict(zip(map(id, jobs), cluster_by_videos(jobs), strict=True))

    for _ in range(20):
        rng.shuffle(jobs)
        assert dict(zip(map(id, jobs), cluster_by_videos(jobs), strict=True)) == found
