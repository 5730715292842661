"""Jobs share the frames of what they show alike, and only those."""

import json

import pytest

from reelabel.sampling.options import Sampling
from reelabel.segment import Segment
from tasks.domain import Medium, Shard
from tasks.domain.job import View, join_fingerprints, views_of
from tests.results.rows import job


def test_views_have_equal_names_only_if_they_show_the_same():
    views = [
        View(uri, shown, segment, texts)
        for uri in ("a.mp4", "a.mp4\ndense", "b.mp4")
        for shown in ("first", "dense")
        for segment in (Segment(), Segment(1, 2), Segment(1), Segment(None, 2))
        for texts in ((), ("a red ball",), ("a", "red ball"))
    ]

    assert View("a.mp4").name == "a.mp4"
    assert len({view.name for view in views}) == len(views) == 72


def test_frames_are_compared_with_each_choice_before_the_question_or_with_it_alone():
    assert job("a", prompt="Which?", choices=("red", "blue")).texts == ("red Which?", "blue Which?")
    assert job("a", prompt="Which?", choices=()).texts == ("Which?",)


def test_only_a_sampler_that_looks_at_the_question_has_frames_of_its_own_for_each():
    question = job("a", prompt="Which?", choices=("red", "blue"), start_s=1.0)

    assert views_of(question, Sampling()) == (View("a.mp4", "first", Segment(1.0)),)
    assert views_of(question, Sampling(sampler="relevant")) == (View("a.mp4", "first", Segment(1.0), question.texts),)
    assert views_of(question, Sampling(escalate_below=0.5), dense=True) == (View("a.mp4", "dense", Segment(1.0)),)


def test_an_image_is_shown_whole_and_by_itself():
    media = (Medium("video", "a.mp4"), Medium("image", "b.png"))

    assert views_of(job("a", media=media), Sampling(sampler="uniform")) == (View("a.mp4"), View("b.png", "image"))


def test_a_shard_shows_each_video_and_image_once_in_the_order_of_its_jobs():
    media = (Medium("video", "c.mp4"), Medium("image", "b.png"), Medium("video", "a.mp4"))
    shard = Shard(index=0, jobs=(job("a"), job("c", media=media), job("b")))

    assert shard.video_uris == ("a.mp4", "c.mp4", "b.png", "b.mp4")


@pytest.mark.parametrize(("fingerprints", "joined"), [(["e1"], "e1"), (["e1", "e2"], '["e1", "e2"]'), ([None], None)])
def test_the_version_of_one_video_is_that_of_its_job(fingerprints, joined):
    assert join_fingerprints(fingerprints) == joined


SIGNED = "https://h/a.mp4?Signature={}&AWSAccessKeyId=k"


def chat(uri, **part):
    content = [{"type": "video_url", "video_url": {"url": uri}}, {"type": "text", "text": "?"} | part]
    return json.dumps([{"role": "user", "content": content}])


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        pytest.param({"video_uri": SIGNED.format(1)}, {"video_uri": SIGNED.format(2)}, id="of its video"),
        pytest.param({"messages": chat(SIGNED.format(1))}, {"messages": chat(SIGNED.format(2))}, id="in messages"),
        pytest.param(
            {"media": (Medium("video", SIGNED.format(1)), Medium("image", "b.png"))},
            {"media": (Medium("video", SIGNED.format(2)), Medium("image", "b.png"))},
            id="of several",
        ),
        pytest.param({"task": "a", "answer": "yes"}, {"subtask": "b", "chunk_s": 60.0, "group": "g"}, id="other notes"),
    ],
)
def test_a_signature_or_a_note_is_no_part_of_a_question(changes, same):
    assert job("a", **changes).digest == job("a", **same).digest


def test_everything_that_can_change_an_answer_is_part_of_a_question():
    changes = [
        {},
        *({"prompt": "Why?"}, {"choices": ("no", "yes")}, {"choices": ()}, {"video_uri": "b.mp4"}),
        *({"start_s": 1.0}, {"end_s": 1.0}, {"system_prompt": "x"}, {"template": "x"}, {"examples": "x"}),
        *({"schema": "x"}, {"media": (Medium("video", "a.mp4"),)}, {"media": (Medium("image", "a.mp4"),)}),
        *({"messages": chat("a.mp4")}, {"messages": chat("b.mp4")}, {"messages": chat("a.mp4", detail="low")}),
    ]

    digests = {job("a", **each).digest for each in changes}

    assert len(digests) == len(changes)
    assert job("b", video_uri="a.mp4").digest in digests
