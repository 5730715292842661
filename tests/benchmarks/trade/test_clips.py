"""The benchmark's clips have as many keyframes as stated, and its answers are balanced."""

from functools import cache

import av
import polars as pl
import pytest

from benchmarks.trade.clips import (
    CLIPS,
    KEYFRAMES,
    MOTION,
    SCENE,
    block,
    fit_clips,
    kept_trade,
    make_trade,
    mix,
)
from tools.tiny_model.scenes import SCENE_QUESTIONS

CELLS = pl.DataFrame(
    [(cell.task, cell.subtask, cell.answer, cell.keyframes) for cell in mix(CLIPS)],
    schema=["task", "subtask", "answer", "keyframes"],
    orient="row",
)


@pytest.fixture(scope="module")
def make_jobs(tmp_path_factory):
    return cache(lambda clips: make_trade(tmp_path_factory.mktemp("trade"), clips=clips))


_ONE_WORKER = (pytest.mark.system, pytest.mark.xdist_group("trade-clips"))


@pytest.fixture(params=[8, pytest.param(len(block()), marks=_ONE_WORKER)])
def jobs(request, make_jobs):
    return make_jobs(request.param)


def keyframes_in(uri):
    with av.open(uri) as container:
        return sum(frame.key_frame for frame in container.decode(video=0))


def test_the_default_asks_over_a_thousand_questions():
    assert CELLS.height == CLIPS >= 1_000
    assert CLIPS % len(block()) == 0


@pytest.mark.parametrize("keyframes", KEYFRAMES)
def test_each_number_of_keyframes_has_a_fifth_of_the_clips_half_of_them_about_motion(keyframes):
    counts = dict(CELLS.filter(keyframes=keyframes).group_by("task").len().iter_rows())

    assert counts == {SCENE: CLIPS // 10, MOTION: CLIPS // 10}


def test_every_choice_is_correct_equally_often_so_chance_is_a_quarter():
    counts = CELLS.group_by("subtask", "keyframes", "answer").len()

    assert counts.group_by("subtask", "keyframes").agg(pl.col("len").n_unique(), choices=pl.len()).select(
        (pl.col("len") == 1).all(), (pl.col("choices") == 4).all()
    ).row(0) == (True, True)
    assert set(counts["subtask"]) == set(SCENE_QUESTIONS)


def test_every_clip_has_as_many_keyframes_and_frames_as_stated(jobs):
    for uri, keyframes, frames in jobs.select("video_uri", "keyframes", "frames").iter_rows():
        assert keyframes_in(uri) == keyframes
        with av.open(uri) as container:
            assert container.streams.video[0].frames == frames


def test_every_job_asks_about_a_different_clip(jobs):
    assert jobs["video_uri"].n_unique() == jobs["job_id"].n_unique() == jobs.height
    assert jobs.select(pl.col("answer").is_in(pl.col("choices")).all()).item()


def test_the_same_seed_makes_the_same_benchmark(tmp_path):
    first, second, other = (
        make_trade(tmp_path / name, clips=2, seed=seed).drop("video_uri")
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )

    assert first.equals(second)
    assert not first.equals(other)
    for path in (tmp_path / "a").glob("*.mp4"):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_kept_clips_are_reused_unless_others_are_requested(tmp_path):
    first = kept_trade(tmp_path, clips=1, seed=3)
    clip = tmp_path / "seed-3" / "trade-0000.mp4"
    clip.write_bytes(b"as it was left")

    assert kept_trade(tmp_path, clips=1, seed=3).equals(first)
    assert clip.read_bytes() == b"as it was left"
    assert kept_trade(tmp_path, clips=2, seed=3).height == 2
    assert clip.read_bytes() != b"as it was left"


def test_kept_clips_may_be_moved(tmp_path):
    kept_trade(tmp_path / "here", clips=2, seed=3)
    (tmp_path / "here").rename(tmp_path / "there")

    uris = kept_trade(tmp_path / "there", clips=2, seed=3)["video_uri"]

    assert uris.to_list() == [f"{tmp_path}/there/seed-3/trade-000{number}.mp4" for number in range(2)]


@pytest.mark.parametrize(("clips", "other"), [(160, 160), (320, 160), (CLIPS, 640)])
def test_routing_is_fitted_on_half_as_many_other_clips_equally_balanced(clips, other):
    assert fit_clips(clips) == other
