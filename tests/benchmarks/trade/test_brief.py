"""Three seconds of a minute answer the question, and the tables count what of them is shown."""

import numpy as np
import polars as pl
import pytest

from benchmarks.trade.brief import LENGTH_S, SHOWN_S, _draw, make_brief
from benchmarks.trade.measure import run_relevance
from benchmarks.trade.relevance import COUNTS, _score
from tasks.demo.actors import paint

AT = np.arange(LENGTH_S) / LENGTH_S


def visible(actors):
    """How many actors are to be seen at each second."""
    return sum(((actor.enters <= AT) & (actor.leaves > AT)).astype(int) for actor in actors)


@pytest.mark.parametrize("subtask", ["colour", "shape", "late"])
def test_the_shape_that_is_asked_about_is_there_for_a_twentieth_of_the_time(subtask):
    rng = np.random.default_rng(1)

    for answer in range(4):
        question, actors = _draw(subtask, answer, rng)
        pixels = paint(actors, AT, rng, background=0).astype(int)

        assert (actors[0].leaves - actors[0].enters) * LENGTH_S == pytest.approx(SHOWN_S) == LENGTH_S / 20
        assert question["answer"] == question["choices"][answer]
        is_colourful = (pixels.max(axis=-1) - pixels.min(axis=-1) > 100).any(axis=(1, 2))
        assert is_colourful.tolist() == (visible(actors[:1]) > 0).tolist()


def test_the_same_seed_makes_the_same_clips_and_says_when_the_shape_is_there(tmp_path):
    first, again = (make_brief(tmp_path / name, clips=1, seed=3) for name in "ab")

    assert (tmp_path / "a/brief-0000.mp4").read_bytes() == (tmp_path / "b/brief-0000.mp4").read_bytes()
    assert first.drop("video_uri").equals(again.drop("video_uri"))
    assert (first["end_ms"] - first["start_ms"]).to_list() == [SHOWN_S * 1000]


def test_what_is_shown_and_answered_is_counted_for_each_sampler():
    jobs = pl.DataFrame({"job_id": ["a", "b"], "answer": ["red", "blue"], "start_ms": [0, 500], "end_ms": [100, 900]})

    def rows(labels, times_ms):
        return pl.DataFrame({"job_id": ["b", "a"], "label": labels, "times_ms": times_ms, "frames_decoded": [10, 30]})

    found = {
        ("uniform", 4): rows(["red", "red"], [[0, 1000], [50, 99, 100]]),
        ("relevant", 4): rows(["blue", "red"], [[500, 899], [0]]),
    }
    uniform, relevant = _score(jobs, found, 40.0)

    assert [each["accuracy"].value for each in (uniform, relevant)] == [0.5, 1.0]
    assert [each["found"].value for each in (uniform, relevant)] == [0.5, 1.0]
    assert [each["frames"] for each in (uniform, relevant)] == [1.0, 1.5]
    assert [each["decoded"] for each in (uniform, relevant)] == [20, 60]
    assert (uniform["difference"], relevant["difference"].value) == (None, 0.5)


@pytest.mark.system
def test_the_benchmark_shows_what_answers_the_question(tmp_path):
    [seen] = run_relevance(tmp_path, clips=12, seed=7)

    assert seen.title.startswith("12 clips")
    rows = {(each["sampler"], each["count"]): each for each in seen.rows}
    assert {count for _, count in rows} == set(COUNTS)
    assert min(rows["relevant", count]["found"].value for count in COUNTS) == 1.0
    assert rows["relevant", 4]["accuracy"].value > rows["uniform", 4]["accuracy"].value
