"""What an index of frames tells without decoding any, and what it cannot be."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from reelabel.coverage import CoverageThresholds
from reelabel.index import LATEST_MS, MOST, Crop, HeaderInfo, VideoIndex, to_ms

INFO = HeaderInfo(width_px=64, height_px=48, fps=10.0, time_base=Fraction(1, 10), duration_s=4.5)
# Five packets: the second is not shown, and the last is shown before the fourth.
ORDER = np.array([0, 2, 4, 3])
INDEX = VideoIndex(
    info=INFO,
    kind="packets",
    lists="frames",
    pts=np.array([20, 21, 30, 60, 50]),
    is_keyframe=np.array([True, True, False, True, False]),
    is_shown=np.array([True, False, True, True, True]),
    pos=np.array([100, 110, 130, 160, 200]),
    size=np.array([10, 20, 30, 40, 50]),
    order=ORDER,
    time_s=np.array([2.0, 3.0, 5.0, 6.0]),
    position=np.arange(4),
    keyframe_s=np.array([2.0, 6.0]),
    keyframes=2,
    first_s=2.0,
    last_s=6.0,
    total_frames=4,
)


def test_columns_of_what_is_shown_are_in_its_order():
    assert INDEX.sizes_bytes.tolist() == [10, 30, 50, 40]
    assert INDEX.shown_keyframes.tolist() == [True, False, False, True]
    assert INDEX.keyframe_indices.tolist() == [0, 3]
    assert INDEX.times_ms.tolist() == [2000, 3000, 5000, 6000]
    assert (INDEX.keyframe_ms.tolist(), INDEX.first_ms) == ([2000, 6000], 2000)


def test_what_is_unknown_is_none():
    unknown = replace(INDEX, time_s=None, keyframe_s=None, first_s=None, last_s=None)

    assert (unknown.is_listed, unknown.keyframe_ms, unknown.first_ms, unknown.start_s) == (False, None, None, None)
    with pytest.raises(ValueError, match="the frames have no times"):
        _ = unknown.times_ms


@pytest.mark.parametrize(
    ("changes", "start_s"),
    [
        pytest.param({}, 2.0, id="at the first frame"),
        pytest.param({"first_s": 1.5}, 2.0, id="which is known better than by the header"),
        pytest.param({"first_s": 1.5, "is_whole": False}, 1.5, id="but not where rows are of a segment"),
        pytest.param({"first_s": 1.5, "lists": "keyframes"}, 1.5, id="nor where they are of keyframes"),
    ],
)
def test_the_clock_of_segments_starts_at_the_first_frame(changes, start_s):
    assert replace(INDEX, **changes).start_s == start_s


@pytest.mark.parametrize(
    ("changes", "fps", "filled_s"),
    [
        pytest.param({}, 10.0, 4 * 4 / 3, id="the last frame lasts as long as the others"),
        pytest.param({"total_frames": 1, "last_s": 2.0}, 10.0, 0.0, id="one frame"),
        pytest.param({"first_s": None, "last_s": None}, 10.0, 0.4, id="by their rate"),
        pytest.param({"first_s": None, "last_s": None}, 0.0, 0.0, id="without times and a rate"),
        pytest.param({"last_s": None}, 10.0, 0.0, id="without an end"),
        pytest.param({"first_s": 9.0}, 10.0, 0.0, id="an end before the start"),
    ],
)
def test_frames_fill_the_time_up_to_the_end_of_the_last(changes, fps, filled_s):
    assert replace(INDEX, **changes).filled_s(fps) == pytest.approx(filled_s)


def test_a_video_is_as_long_as_it_states_unless_its_timestamps_are_not_its_times():
    filled_s = INDEX.filled_s(10.0)

    assert INDEX.length_s(INFO) == 4.5
    assert INDEX.length_s(replace(INFO, duration_s=0.0)) == filled_s
    assert replace(INDEX, note="set back").length_s(INFO) == 4.5
    assert replace(INDEX, kind="decode").length_s(INFO) == 4.5
    assert replace(INDEX, kind="decode", note="set back").length_s(INFO) == filled_s


def test_coverage_counts_from_the_first_frame_to_the_stated_end():
    thresholds = CoverageThresholds(min_keyframes=1, max_gap_s=9)
    decoded = replace(INDEX, kind="decode", note="set back", info=replace(INFO, duration_s=99.0))

    assert INDEX.coverage(thresholds).longest_gap_s == 4.0
    assert replace(INDEX, first_s=1.0).coverage(thresholds).cover < INDEX.coverage(thresholds).cover
    assert decoded.coverage(thresholds).longest_gap_s == 4.0


def test_a_part_is_an_index_of_its_own():
    part = INDEX.part(np.array([False, True, True, True]), since_s=3.0)

    assert part.time_s.tolist() == [0.0, 2.0, 3.0]
    assert (part.keyframe_s.tolist(), part.keyframes) == ([3.0], 1)
    assert (part.first_s, part.last_s, part.total_frames, part.position.tolist()) == (0.0, 3.0, 3, [1, 2, 3])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pos": np.zeros(4, np.int64)}, "columns are"),
        ({"position": np.arange(3)}, "columns are"),
        ({"order": np.array([0, 1, 2, 5])}, "order must be rows of 5"),
        ({"order": np.array([-1, 1, 2, 3])}, "order must be rows of 5"),
        ({"keyframes": 3}, "3 keyframes, but keyframe_s has shape"),
        ({"keyframes": MOST + 1, "keyframe_s": None}, "keyframes of 4 frames"),
        ({"total_frames": -1}, "2 keyframes of -1 frames"),
        ({"keyframe_s": np.array([6.0, 2.0])}, "keyframe_s must be finite and never fall"),
        ({"time_s": np.array([2.0, 3.0, 3.0, np.inf])}, "time_s must be finite and never fall"),
        ({"size": np.array([10, 20, -1, 40, 50])}, "must not be negative"),
        ({"position": np.array([0, 1, 2, -2])}, "must not be negative"),
    ],
)
def test_an_index_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(INDEX, **changes)


def test_unknown_positions_and_bytes_are_allowed():
    got = replace(INDEX, position=np.full(4, -1), size=np.zeros(5, np.int64), time_s=np.full(4, 2.0))

    assert got.position.tolist() == [-1] * 4


@pytest.mark.parametrize(
    "changes", [{"width_px": -1}, {"height_px": MOST + 1}, {"fps": -0.1}, {"duration_s": -1.0}, {"frames": -1}]
)
def test_properties_that_no_video_has_are_refused(changes):
    with pytest.raises(ValueError, match="must not be negative"):
        replace(INFO, **changes)


@pytest.mark.parametrize(
    ("crop", "size"),
    [
        pytest.param(Crop(), (64, 48), id="none"),
        pytest.param(Crop(1, 2, 3, 4), (60, 42), id="on each side"),
        pytest.param(Crop(left=63), (1, 48), id="almost all of the width"),
        pytest.param(Crop(left=32, right=32), (64, 48), id="all of the width"),
        pytest.param(Crop(top=47), (64, 1), id="almost all of the height"),
        pytest.param(Crop(top=40, bottom=8), (64, 48), id="all of the height"),
    ],
)
def test_margins_are_left_out_unless_they_are_all_that_there_is(crop, size):
    assert crop.fits(64, 48) == (size != (64, 48))
    assert replace(INFO, crop=crop).shown_size == size


def test_times_are_rounded_to_milliseconds_and_cut_off_where_they_are_not_exact():
    assert to_ms(np.array([0.0004, 0.0006, -1.0, 1e30, -1e30])).tolist() == [0, 1, -1000, LATEST_MS, -LATEST_MS]
