"""Our picks compared with those of vLLM's loaders, and why they differ."""

import pytest

from benchmarks.exactness.against_vllm import LoaderChoice, Reason, differences, loader_options
from reelabel.extract import extract_local
from reelabel.sampling.options import Sampling
from tests.clips import make_clip

__all__ = ["make_clip"]

UNIFORM = Sampling(sampler="uniform", num_frames=4)


def choice(chosen, **changes):
    facts = {"shown": chosen, "total_frames": 48, "fps": 12.0, "duration_s": 4.0, "refusal": ""}
    return LoaderChoice(chosen=chosen, **facts | changes)


@pytest.fixture
def frames(make_clip):
    return extract_local(make_clip(), sampling=UNIFORM)


def reasons(frames, theirs):
    return {position: list(each) for position, each in differences(frames, theirs, UNIFORM).items()}


def test_equal_picks_need_no_reason(frames):
    assert reasons(frames, choice([0, 15, 31, 47])) == {0: [], 15: [], 31: [], 47: []}


def test_a_frame_that_vllm_chooses_but_cannot_read_is_listed(frames):
    found = reasons(frames, choice([0, 15, 31, 47], shown=[0, 15, 31]))

    assert found == {0: [], 15: [], 31: [], 47: [Reason.UNREADABLE]}


def test_a_different_frame_count_explains_different_frames(frames):
    found = reasons(frames, choice([0, 19, 39, 59], total_frames=60))

    assert {position for position, each in found.items() if each == [Reason.COUNT]} == {15, 19, 31, 39, 47, 59}


def test_a_difference_without_a_known_reason_is_not_explained_away(frames):
    assert set(map(tuple, reasons(frames, choice([1, 2, 3, 4], total_frames=60)).values())) == {(Reason.UNKNOWN,)}


def test_a_refusal_is_a_reason(frames):
    found = reasons(frames, choice([], total_frames=0, fps=0.0, refusal="Could not open video stream"))

    assert set(map(tuple, found.values())) == {(Reason.UNCOUNTED, Reason.REFUSED)}


def test_options_reach_the_loader_under_its_own_names():
    assert loader_options(Sampling(sampler="dynamic", max_duration_s=9)) == (
        "opencv_dynamic",
        {"max_duration": 9.0, "num_frames": 16},
    )
    assert loader_options(Sampling(sampler="glm5_next", max_frames=9)) == (
        "glm5next",
        {"max_frames": 9, "num_frames": 16},
    )
    with pytest.raises(ValueError, match="keyframes reproduces no loader"):
        loader_options(Sampling())


@pytest.mark.parametrize(
    ("options", "theirs"),
    [
        ({}, {"frame_sample_mode": "uniform_last_frame", "max_fps": 2.0}),
        ({"fps": 3}, {"frame_sample_mode": "uniform_last_frame", "max_fps": 3.0}),
        ({"fps": -1}, {"frame_sample_mode": "uniform_last_frame", "max_fps": None}),
        ({"frame_sample_mode": "fps", "fps": 3}, {"frame_sample_mode": "fps", "sampling_fps": 3.0}),
        ({"frame_sample_mode": "every_frame"}, {"frame_sample_mode": None}),
    ],
)
def test_each_mode_of_molmo2_reads_one_of_its_two_rates(options, theirs):
    sampling = Sampling(sampler="molmo2", num_frames=9, **options)

    assert loader_options(sampling) == ("molmo2", theirs | {"num_frames": 9})
