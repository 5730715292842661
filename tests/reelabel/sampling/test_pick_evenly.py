from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reelabel.decode.render import fit_size
from reelabel.sampling.uniform import pick_evenly

COUNTS = st.integers(1, 2000)


@given(available=COUNTS, wanted=st.integers(1, 200))
def test_picks_are_in_order_and_within_bounds(available, wanted):
    picks = pick_evenly(available, wanted)

    assert len(picks) == wanted
    assert picks == sorted(picks)
    assert picks[0] >= 0
    assert picks[-1] < available


@given(available=COUNTS, wanted=st.integers(1, 200))
def test_repeats_differ_by_at_most_one(available, wanted):
    counts = Counter(pick_evenly(available, wanted))

    assert max(counts.values()) - min(counts.values()) <= 1
    assert len(counts) == min(available, wanted)


@given(available=st.integers(2, 2000), wanted=st.integers(2, 200))
def test_gaps_between_picks_differ_by_at_most_one(available, wanted):
    picks = pick_evenly(available, wanted)

    gaps = [after - before for before, after in pairwise(picks)]
    assert max(gaps) - min(gaps) <= 1


@given(available=st.integers(2, 2000), wanted=st.integers(2, 200))
def test_both_ends_are_taken(available, wanted):
    picks = pick_evenly(available, wanted)

    assert picks[0] == 0
    assert picks[-1] == available - 1


def test_nothing_to_pick_from_is_an_error():
    with pytest.raises(ValueError, match="cannot pick 4 of 0"):
        pick_evenly(0, 4)


@given(width=st.integers(16, 8000), height=st.integers(16, 8000), multiple=st.sampled_from([14, 28, 32]))
def test_sizes_are_multiples_of_the_patch(width, height, multiple):
    fitted = fit_size(width, height, max_pixels=602_112, multiple_px=multiple)

    assert all(side >= multiple and side % multiple == 0 for side in fitted)
    if max(width, height) / min(width, height) < 50:
        assert fitted[0] * fitted[1] <= 602_112


@given(available=st.integers(2, 2000), wanted=st.integers(2, 200))
def test_a_pick_is_the_frame_nearest_to_its_ideal_position(available, wanted):
    assume(wanted <= available)

    picks = pick_evenly(available, wanted)

    step = (available - 1) / (wanted - 1)
    assert all(abs(pick - number * step) <= 0.5 + 1e-9 for number, pick in enumerate(picks))


@given(available=COUNTS)
def test_a_lone_pick_is_the_middle(available):
    assert pick_evenly(available, 1) == [available // 2]
