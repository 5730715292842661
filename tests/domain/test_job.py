"""Jobs share the frames of what they show alike, and only those."""

from reelabel.segment import Segment
from tasks.domain.job import View
from tests.results.rows import job


def test_views_have_equal_names_only_if_they_show_the_same():
    views = [
        View(uri, shown, segment, texts)
        for uri in ("a.mp4", "b.mp4")
        for shown in ("first", "dense")
        for segment in (Segment(), Segment(1, 2), Segment(1), Segment(None, 2))
        for texts in ((), ("a red ball",), ("a", "red ball"))
    ]

    assert View("a.mp4").name == "a.mp4"
    assert len({view.name for view in views}) == len(views) == 48


def test_frames_are_compared_with_each_choice_before_the_question_or_with_it_alone():
    assert job("a", prompt="Which?", choices=("red", "blue")).texts == ("red Which?", "blue Which?")
    assert job("a", prompt="Which?", choices=()).texts == ("Which?",)
