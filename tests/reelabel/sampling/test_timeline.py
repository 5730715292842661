import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reelabel.sampling.options import Sampling
from reelabel.sampling.registry import choose_indices, deviations_s
from reelabel.sampling.spec import VideoProperties

# A second at 10 fps, a pause of two seconds, another second at 10 fps.
PAUSED_S = np.r_[np.arange(10) / 10, 3 + np.arange(10) / 10]


def facts_at(times_s, fps=0.0):
    times_s = np.asarray(times_s, np.float64)
    return VideoProperties(total_frames=len(times_s), fps=fps, duration_s=float(np.ptp(times_s)), times_s=times_s)


def test_fps_picks_the_frame_nearest_to_each_instant():
    sampling = Sampling(sampler="fps", fps=1)

    assert choose_indices(sampling, facts_at(PAUSED_S)).tolist() == [0, 9, 10, 10]
    assert deviations_s(sampling, facts_at(PAUSED_S)) == pytest.approx([0, -0.1, 1, 0])


def test_the_usual_rate_is_two_frames_a_second_up_to_768():
    usual = Sampling(sampler="fps")

    assert choose_indices(usual, facts_at(np.arange(21) / 10)).tolist() == [0, 5, 10, 15, 20]
    assert [len(choose_indices(usual, facts_at(np.arange(count) / 2))) for count in (768, 769)] == [768, 768]


def test_num_frames_spreads_instants_from_the_first_to_the_last_frame():
    sampling = Sampling(sampler="num_frames", num_frames=4)

    assert choose_indices(sampling, facts_at(PAUSED_S)).tolist() == [0, 9, 10, 19]
    assert deviations_s(sampling, facts_at(PAUSED_S)) == pytest.approx([0, -0.4, 0.4, 0])


def test_middles_are_those_of_equal_parts_of_the_time_that_the_frames_fill():
    steady, sampling = facts_at(7 + np.arange(40) / 10), Sampling(sampler="middles", num_frames=4)

    assert choose_indices(sampling, steady).tolist() == [5, 15, 25, 35]
    assert deviations_s(sampling, steady) == pytest.approx([0, 0, 0, 0], abs=1e-9)
    assert choose_indices(sampling, facts_at(PAUSED_S)).tolist() == [5, 9, 10, 15]
    assert choose_indices(sampling, facts_at([3.0])).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("rounded_s", [-1e-7, 0, 1e-7])
def test_a_middle_between_two_frames_is_that_of_the_earlier_one_whatever_is_rounded(rounded_s):
    times_s = np.arange(15) / 12 + np.where(np.arange(15) % 2, rounded_s, -rounded_s)

    assert choose_indices(Sampling(sampler="middles", num_frames=3), facts_at(times_s)).tolist() == [2, 7, 12]


def test_as_many_instants_as_max_frames_stay_at_their_rate():
    chosen = choose_indices(Sampling(sampler="fps", fps=1, max_frames=4), facts_at(PAUSED_S))

    assert chosen.tolist() == [0, 9, 10, 10]


def test_of_two_frames_as_near_the_earlier_one_is_taken():
    assert choose_indices(Sampling(sampler="fps", fps=2), facts_at([0.0, 1.0, 2.0])).tolist() == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("first_s", [0.0, 7.1, 3600.04])
@pytest.mark.parametrize("rate", [10, 24, 25, 30, 48, 60])
def test_of_two_frames_as_near_the_earlier_one_is_taken_whatever_is_rounded(first_s, rate):
    facts, count = facts_at(first_s + np.arange(15 * rate + 1) / rate), 2 * 15 * rate + 1

    for sampling in (
        Sampling(sampler="fps", fps=2 * rate, max_frames=count),
        Sampling(sampler="num_frames", num_frames=count),
    ):
        assert choose_indices(sampling, facts).tolist() == (np.arange(count) // 2).tolist()


def test_no_instant_is_lost_to_rounding():
    assert choose_indices(Sampling(sampler="fps", fps=25), facts_at(np.arange(30) / 25)).tolist() == [*range(30)]


def test_every_frame_is_taken_once_and_no_more_than_the_most():
    together, timeless = facts_at([0.0, 1.0, 1.0, 2.0]), VideoProperties(total_frames=9, fps=0.0, duration_s=0.0)

    for sampling in (Sampling(sampler="num_frames", num_frames=-1), Sampling(sampler="fps", fps=-1)):
        assert choose_indices(sampling, together).tolist() == [0, 1, 2, 3]
        assert choose_indices(sampling, timeless).tolist() == [*range(9)]
    most = Sampling(sampler="fps", fps=-1, max_frames=3)
    assert choose_indices(most, facts_at(np.arange(9) ** 2)).tolist() == [0, 6, 8]
    assert choose_indices(most, timeless).tolist() == [0, 4, 8]


def test_instants_count_from_the_first_frame():
    late = facts_at(PAUSED_S + 100)

    assert choose_indices(Sampling(sampler="fps", fps=1), late).tolist() == [0, 9, 10, 10]


def test_more_instants_than_max_frames_are_spread_over_the_video():
    chosen = choose_indices(Sampling(sampler="fps", fps=10, max_frames=3), facts_at(np.arange(101) / 10))

    assert chosen.tolist() == [0, 50, 100]


def test_the_frame_rate_replaces_unknown_times():
    facts = VideoProperties(total_frames=31, fps=30.0, duration_s=31 / 30)

    assert choose_indices(Sampling(sampler="fps", fps=3), facts).tolist() == [0, 10, 20, 30]


@pytest.mark.parametrize("sampler", ["fps", "num_frames", "middles"])
def test_without_times_and_frame_rate_frames_are_taken_uniformly(sampler):
    facts = VideoProperties(total_frames=9, fps=0.0, duration_s=0.0)
    sampling = Sampling(sampler=sampler, num_frames=3)

    assert choose_indices(sampling, facts).tolist() == [0, 4, 8]
    assert deviations_s(sampling, facts) is None


def test_samplers_by_index_report_no_deviation():
    assert deviations_s(Sampling(sampler="uniform"), facts_at(PAUSED_S)) is None


@given(
    times_s=st.lists(st.floats(0, 100), min_size=1, max_size=60).map(sorted),
    sampling=st.builds(Sampling, sampler=st.just("fps"), fps=st.floats(0.1, 5))
    | st.builds(Sampling, sampler=st.just("num_frames"), num_frames=st.integers(1, 40)),
)
def test_no_other_frame_is_nearer(times_s, sampling):
    facts = facts_at(times_s)

    chosen_s = facts.times_s[choose_indices(sampling, facts)]
    deviation_s = deviations_s(sampling, facts)

    instants_s = chosen_s - deviation_s
    nearest_s = np.abs(facts.times_s[:, None] - instants_s).min(axis=0)
    assert np.abs(deviation_s) == pytest.approx(nearest_s, abs=1e-6)


def test_times_that_fall_are_no_times():
    with pytest.raises(ValueError, match="times_s must never fall"):
        facts_at([0.0, 2.0, 1.0])
