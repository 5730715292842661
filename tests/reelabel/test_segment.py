import pytest

from reelabel.segment import Segment
from tasks.domain.job import View


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        (Segment(3.0, 5.0), "t=3,5"),
        (Segment(1.5, None), "t=1.5"),
        (Segment(None, 9), "t=,9"),
        (Segment(36000.02, 36005.02), "t=36000.02,36005.02"),
    ],
)
def test_a_segment_is_written_as_a_media_fragment(segment, text):
    assert str(segment) == text


def test_segments_a_moment_apart_have_different_names():
    segments = [Segment(36000.02, 36005.02), Segment(36000.04, 36005.04), Segment(0.1 + 0.2, 1), Segment(0.3, 1)]

    assert len({View("a.mp4", segment=segment).name for segment in segments}) == 4
