"""Which frames a prompt has, over streams of any length."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reelabel_engine.live_items import FramePair
from tasks.live.window import FramePairs, Window, WindowRule, spread

PIXELS = np.zeros((2, 2, 2, 3), np.uint8)
STREAMS = st.lists(
    st.tuples(st.floats(0, 50), st.floats(0, 50), st.sampled_from([1, 2])), min_size=1, max_size=80
)  # a gap, the time within a pair, and the number of frames


def stream(gaps):
    now = 0.0
    for gap, within, frames in gaps:
        start, now = now + gap, now + gap + within
        yield FramePair(images=PIXELS, times_s=(start, now), frames=frames)


def of_pairs(count, fps=2.0):
    return [FramePair(images=PIXELS, times_s=(2 * k / fps, (2 * k + 1) / fps)) for k in range(count)]


@given(STREAMS, st.integers(0, 9), st.floats(0.1, 60), st.sampled_from(["frames", "seconds"]))
@settings(max_examples=150)
def test_a_prompt_has_the_sink_and_at_least_the_window_and_only_the_following_prefix_takes_over(gaps, sink, size, unit):
    size = max(2, round(size)) if unit == "frames" else size
    window = Window(WindowRule(sink=sink, size=size, unit=unit))
    added, gone = [], []
    for item in stream(gaps):
        before, following = window.current, window.next

        evicted = window.add(item)

        added.append(item)
        gone += evicted
        now = window.current
        kept = [each for each in added if each not in gone]
        assert list(now) == kept  # in order, none lost, none twice
        assert window.evicted == sum(each.frames for each in gone)
        assert set(window.sink).isdisjoint(gone)
        assert sum(each.frames for each in window.sink) >= min(sink, sum(each.frames for each in added))
        if not evicted:
            assert now == (*before, item)
        elif unit == "frames" and size > 2:  # a gap of seconds may evict several times at once
            assert now == (*following, item)
        recent = now[len(window.sink) :]
        if unit == "frames":
            assert sum(each.frames for each in recent) < 2 * size + 2
            assert (
                sum(each.frames for each in (*recent, *gone)) < size or sum(each.frames for each in recent) >= size - 1
            )
        else:
            # Less than two windows, unless a single pair is longer than one.
            assert recent[-1:] == () or recent[-1].times_s[1] - recent[0].times_s[1] < 2 * size
            # The last seconds are all there.
            assert all(each in now for each in added if each.times_s[1] > item.times_s[1] - size)
        if window.next:
            assert window.next[: len(window.sink)] == window.sink
            assert set(window.next) < set(now)


def test_the_following_prefix_grows_by_one_item_an_arrival_from_the_full_window_on():
    window = Window(WindowRule(sink=2, size=8))
    grown = []
    for item in of_pairs(13):
        window.add(item)
        grown.append((len(window.current), len(window.next)))

    assert grown == [
        *[(1, 0), (2, 0), (3, 0), (4, 0), (5, 0)],  # the sink, then four pairs: the window is full
        *[(6, 2), (7, 3), (8, 4)],
        *[(5, 0), (6, 2), (7, 3), (8, 4)],  # a switch to what was read already
        (5, 0),
    ]


def test_an_hour_at_two_frames_a_second_stays_within_twice_the_window():
    window = Window(WindowRule(sink=4, size=30, unit="seconds"))
    most = 0
    for item in of_pairs(3600):
        window.add(item)
        most = max(most, len(window.current))

    assert most <= 2 + 60
    assert window.evicted + sum(item.frames for item in window.current) == 7200


def test_without_a_size_nothing_is_evicted():
    window = Window(WindowRule())

    assert [window.add(item) for item in of_pairs(50)] == [()] * 50
    assert len(window.current) == 50


@pytest.mark.parametrize(
    ("count", "most", "indices"),
    [(3, 5, [0, 1, 2]), (3, 3, [0, 1, 2]), (9, 1, [8]), (9, 2, [0, 8]), (9, 5, [0, 2, 4, 6, 8])],
)
def test_frames_are_spread_from_the_first_to_the_last(count, most, indices):
    assert spread(count, most) == indices


def image(value, side=4):
    return np.full((side, side, 3), value, np.uint8)


def test_frames_are_paired_and_one_without_a_partner_is_shown_twice():
    pairs = FramePairs()

    assert pairs.add(image(1), 0.0) == ()
    assert pairs.alone.frames == 1
    assert pairs.alone.times_s == (0.0, 0.0)
    [pair] = pairs.add(image(2), 0.5)
    assert pair.times_s == (0.0, 0.5)
    assert [int(each.mean()) for each in pair.images] == [1, 2]
    assert pairs.alone is None


def test_a_frame_of_another_size_begins_a_new_pair():
    pairs = FramePairs()
    pairs.add(image(1), 0.0)

    [left] = pairs.add(image(2, side=6), 0.5)

    assert (left.frames, left.images.shape) == (1, (2, 4, 4, 3))
    assert pairs.alone.images.shape == (2, 6, 6, 3)


def test_a_hash_distinguishes_pixels_times_and_shapes():
    base = FramePair(images=np.zeros((2, 4, 2, 3), np.uint8), times_s=(0.0, 0.5))
    others = [
        FramePair(images=np.zeros((2, 4, 2, 3), np.uint8), times_s=(0.0, 0.6)),
        FramePair(images=np.zeros((2, 2, 4, 3), np.uint8), times_s=(0.0, 0.5)),
        FramePair(images=np.ones((2, 4, 2, 3), np.uint8), times_s=(0.0, 0.5)),
    ]

    assert len({base.hash, *(each.hash for each in others)}) == 4
    assert base.hash == FramePair(images=np.zeros((2, 4, 2, 3), np.uint8), times_s=(0.0, 0.5)).hash


@pytest.mark.parametrize(
    ("images", "times_s"),
    [
        (np.zeros((1, 4, 4, 3), np.uint8), (0.0, 0.5)),
        (np.zeros((2, 4, 4, 3), np.float32), (0.0, 0.5)),
        (PIXELS, (1.0, 0.5)),
        (PIXELS, (-1.0, 0.5)),
        (PIXELS, (float("nan"), 0.5)),
    ],
)
def test_an_invalid_pair_of_frames_is_refused(images, times_s):
    with pytest.raises(ValueError, match="must"):
        FramePair(images=images, times_s=times_s)
