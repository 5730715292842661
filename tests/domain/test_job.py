"""Jobs share the frames of what they show alike, and only those."""

from reelabel.segment import Segment
from tasks.domain.job import View


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
