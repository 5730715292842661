"""The controls of the evaluation catch a model that does not look at the frames."""

import io

import av
import pytest
from rich.console import Console

from tasks.demo.shapes import OPPOSITES
from tools.tiny_model.evaluate import accuracy_table, evaluate, make_evaluation, missed_targets

CLIPS = 8


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    return make_evaluation(tmp_path_factory.mktemp("evaluation"), clips=CLIPS)


def first_frame(uri):
    with av.open(uri) as container:
        return next(container.decode(video=0)).to_ndarray(format="rgb24")


def answer_all(rows):
    """Answer as a model that sees would: right on what moves, a constant on black."""
    return [row["choices"][0] if row["subtask"] == "black" else row["answer"] for row in rows]


def test_every_clip_comes_forwards_backwards_and_black(jobs):
    assert jobs.height == CLIPS * 3 * 3
    assert jobs["subtask"].value_counts()["count"].to_list() == [CLIPS * 3] * 3


def test_black_clips_are_black(jobs):
    uri = jobs.filter(subtask="black")["video_uri"][0]

    assert first_frame(uri).max() <= 2


def test_backwards_only_the_direction_is_reversed(jobs):
    forwards, backwards = (
        jobs.filter(subtask=variant).select("task", "answer").rows() for variant in ("forwards", "backwards")
    )

    for (task, answer), (_, flipped) in zip(forwards, backwards, strict=True):
        assert flipped == (OPPOSITES[answer] if task == "direction" else answer)


def test_a_model_that_sees_passes(jobs):
    assert missed_targets(evaluate(jobs, answer_all)) == []


def test_a_model_that_answers_about_black_clips_is_detected(jobs):
    found = missed_targets(evaluate(jobs, lambda rows: [row["answer"] for row in rows]))

    assert len(found) == 3
    assert all("not chance" in fault for fault in found)


def test_a_model_that_ignores_the_order_of_frames_is_detected(jobs):
    def ignore_order(rows):
        return [
            OPPOSITES[label] if row["subtask"] == "backwards" and row["task"] == "direction" else label
            for row, label in zip(rows, answer_all(rows), strict=True)
        ]

    assert missed_targets(evaluate(jobs, ignore_order)) == ["direction backwards is 0.000, below 0.95"]


def test_the_table_has_a_line_for_each_variant(jobs):
    console = Console(width=120, file=io.StringIO())
    console.print(accuracy_table(evaluate(jobs, answer_all)))

    text = console.file.getvalue()

    assert all(word in text for word in ("forwards", "backwards", "black", "colour", "1.000"))
