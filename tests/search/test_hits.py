"""Neighbouring frames are one moment, and many good frames of one scene do not hide other videos."""

import numpy as np

from tasks.search.hits import Hits, merge_moments, top_hits
from tests.search.conftest import SIZE


def found(*frames):
    scores, files, pts_ms = zip(*frames, strict=True)
    return Hits(scores=np.array(scores, np.float32), files=np.array(files), pts_ms=np.array(pts_ms))


def positions(moments):
    return [(each.file, each.time_ms) for each in moments]


def test_frames_near_a_better_one_of_the_same_video_belong_to_its_moment():
    frames = found((0.9, 0, 10_000), (0.8, 0, 14_999), (0.7, 0, 5_001), (0.6, 0, 15_000), (0.5, 1, 10_000))

    assert positions(merge_moments(frames, np.array([0, 1]), top=9)) == [(0, 10_000), (0, 15_000), (1, 10_000)]


def test_files_of_one_video_have_common_moments():
    frames = found((0.9, 0, 10_000), (0.8, 1, 10_000), (0.7, 2, 10_000))

    assert positions(merge_moments(frames, np.array([0, 0, 1]), top=9)) == [(0, 10_000), (2, 10_000)]


def test_top_hits_of_parts_are_those_of_all():
    rng = np.random.default_rng(0)
    parts = [
        Hits(
            scores=rng.normal(size=count).astype(np.float32),
            files=np.full(count, number),
            pts_ms=np.arange(count),
        )
        for number, count in enumerate([0, 7, 50, 3, 200])
    ]
    scores = np.sort(np.concatenate([part.scores for part in parts]))[::-1]

    for limit in (1, 10, 300):
        assert top_hits(parts, limit).scores.tolist() == scores[:limit].tolist()


def test_of_equal_frames_the_earlier_comes_first():
    equal = found((0.5, 1, 2), (0.5, 0, 9), (0.5, 0, 3))

    assert positions(merge_moments(equal.best(3), np.arange(2), top=9)) == [(0, 3), (1, 2)]


def test_of_more_equal_frames_than_fit_the_earlier_ones_are_kept():
    order = np.random.default_rng(0).permutation(1000)
    equal = Hits(scores=np.full(1000, 0.5, np.float32), files=order % 10, pts_ms=order)

    best = equal.best(100)

    assert best.files.tolist() == [0] * 100
    assert best.pts_ms.tolist() == list(range(0, 1000, 10))


def test_one_long_scene_does_not_hide_the_others(world, monkeypatch):
    monkeypatch.setattr("tasks.search.searcher._FRAMES_PER_MOMENT", 3)
    scene = np.ones(SIZE)
    world.add("long.mp4", np.tile(scene, (100, 1)), step_ms=10)
    for number in range(3):
        world.add(f"{number}.mp4", [scene + np.eye(SIZE)[number]])

    result = world.search(scene, top=4)

    assert [each.file for each in result.moments] == [0, 1, 2, 3]


def test_scores_below_the_least_are_left_out(world):
    world.add("a.mp4", [np.ones(SIZE), -np.ones(SIZE)], step_ms=60_000)

    assert len(world.search(np.ones(SIZE)).moments) == 2
    [best] = world.search(np.ones(SIZE), min_score=0.5).moments
    assert world.search(np.ones(SIZE), min_score=best.score).moments == (best,)


def test_the_moment_that_others_are_to_be_like_is_not_found(world):
    key = world.add("a.mp4", np.ones((20, SIZE)))
    world.add("b.mp4", np.ones((20, SIZE)))

    result = world.search(np.ones(SIZE), top=9, exclude=(key, 8000))

    assert positions(result.moments)[:3] == [(0, 0), (0, 13_000), (0, 18_000)]
    near = [each.file for each in result.moments if abs(each.time_ms - 8000) < 5000]
    assert set(near) == {1}
