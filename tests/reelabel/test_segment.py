from fractions import Fraction

import numpy as np
import pytest

from reelabel.segment import Segment, lie_in_windows, select_segment
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


@pytest.mark.parametrize("ends", [(2.0, 2.0), (0.0, None), (None, 0.0), (0.0, 1e9), (None, None)])
def test_a_segment_may_be_as_short_as_an_instant(ends):
    segment = Segment(*ends)

    segment.check_valid()
    assert segment.is_whole == (ends == (None, None))
    assert segment.bounds(0, None) == (-np.inf, np.inf)


@pytest.mark.parametrize(
    ("segment", "numbers", "is_empty"),
    [
        (Segment(1.0, 2.0), [1, 2], False),
        (Segment(1.5, None), [2, 3], False),
        (Segment(None, 0.5), [0], False),
        (Segment(1.2, 1.8), [1], True),
        (Segment(4.0, 5.0), [3], True),
    ],
)
def test_a_segment_without_a_frame_has_the_one_before_it(segment, numbers, is_empty):
    got = select_segment(np.arange(4.0), segment, first_s=0.0)

    assert (got.numbers.tolist(), got.is_empty) == (numbers, is_empty)
    later = select_segment(np.arange(4.0) + 9, segment, first_s=9.0)
    assert (later.numbers.tolist(), later.is_empty) == (numbers, is_empty)


def test_times_that_were_rounded_lie_in_a_segment_whose_ends_they_are():
    times_s = np.array([0.2998, 0.29995, 0.4, 0.50005, 0.5002])

    assert select_segment(times_s, Segment(0.3, 0.5), first_s=0.0).numbers.tolist() == [1, 2, 3]
    assert lie_in_windows(times_s, ((0.3, 0.5),)).tolist() == [False, True, True, True, False]


@pytest.mark.parametrize("time_base", [Fraction(1, 1000), Fraction(1, 90_000), Fraction(1, 10**6), Fraction(1, 25)])
def test_no_frame_of_a_segment_is_beyond_its_bounds(time_base):
    segment, first_pts = Segment(2.2, 3.3), 77
    pts = first_pts + np.arange(round(2 / time_base), round(4 / time_base))
    times_s = pts * float(time_base)

    inside = pts[select_segment(times_s, segment, first_s=first_pts * float(time_base)).numbers]

    least, most = segment.bounds(first_pts, time_base)
    assert least <= inside[0] <= inside[-1] <= most
    assert inside[0] - least <= 2 + 2e-4 / time_base >= most - inside[-1]


def test_segments_a_moment_apart_have_different_names():
    segments = [Segment(36000.02, 36005.02), Segment(36000.04, 36005.04), Segment(0.1 + 0.2, 1), Segment(0.3, 1)]

    assert len({View("a.mp4", segment=segment).name for segment in segments}) == 4
