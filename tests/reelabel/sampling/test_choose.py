"""A sampler chooses among the frames of a segment as if the video had been trimmed to it."""

import numpy as np
import pytest

from reelabel.errors import NoFramesError, SamplingRefusedError
from reelabel.index import NO_PTS, HeaderInfo, VideoIndex
from reelabel.sampling.choose import Instants, Positions, choose
from reelabel.sampling.options import Sampling
from reelabel.segment import Segment

FPS = 10


def index_of(frames=40, *, keyframes=(0, 12, 24, 36), first_s=2.0, times=True, kind="packets"):
    """Return an index of frames that are decoded in pairs, the later one first, as with B-frames."""
    is_keyframe = np.zeros(frames, np.bool_)
    order = np.arange(frames)
    order[1:-1:2], order[2::2] = order[2::2].copy(), order[1:-1:2].copy()
    is_keyframe[order[list(keyframes)]] = True
    time_s = first_s + np.arange(frames) / FPS
    return VideoIndex(
        info=HeaderInfo(fps=float(FPS), duration_s=frames / FPS, width_px=64, height_px=48),
        kind=kind,
        lists="frames",
        pts=np.argsort(order) if times else np.full(frames, NO_PTS),
        is_keyframe=is_keyframe,
        is_shown=np.ones(frames, np.bool_),
        pos=np.zeros(frames, np.int64),
        size=np.zeros(frames, np.int64),
        order=order,
        time_s=time_s if times else None,
        position=np.arange(frames),
        keyframe_s=time_s[list(keyframes)] if times else None,
        keyframes=len(keyframes),
        first_s=first_s if times else None,
    )


UNIFORM = Sampling(sampler="uniform", num_frames=4)


def test_keyframes_are_picked_evenly_and_repeat_where_there_are_fewer():
    few, many = (choose(index_of(), Sampling(num_frames=count)).indices.tolist() for count in (2, 6))

    assert few == [0, 36]
    assert (sorted(set(many)), len(many)) == ([0, 12, 24, 36], 6)
    assert not choose(index_of(), Sampling()).is_empty


def test_a_segment_is_sampled_as_a_video_of_its_own():
    index = index_of()

    got = choose(index, UNIFORM, Segment(1.0, 1.9))
    alone = choose(index_of(10, keyframes=(0,)), UNIFORM)

    assert (got.indices - 10).tolist() == alone.indices.tolist()
    assert (got.starts_s, got.is_empty) == (3.0, False)
    assert (alone.starts_s, alone.is_empty) == (None, False)


def test_a_rate_counts_by_the_length_of_the_frames_that_there_are():
    sparse = Sampling(sampler="uniform", num_frames=-1, fps=1)

    assert choose(index_of(), sparse).indices.tolist() == [0, 13, 26, 39]
    assert choose(index_of(), sparse, Segment(1.0, 2.95)).indices.tolist() == [10, 29]


def test_keyframes_of_a_segment_lie_in_it():
    got = choose(index_of(), Sampling(num_frames=-1), Segment(1.0, 2.5))

    assert (got.indices.tolist(), got.starts_s) == ([12, 24], 3.0)
    assert choose(index_of(), Sampling(), Segment(None, 1.5)).starts_s == 2.0


@pytest.mark.parametrize(("sampling", "place"), [(UNIFORM, 39), (Sampling(), 36)])
def test_an_empty_segment_shows_the_last_frame_before_it(sampling, place):
    got = choose(index_of(), sampling, Segment(7.0, 8.0))

    assert (got.unique.tolist(), got.is_empty) == ([place], True)


def test_instants_are_on_the_clock_of_the_frames():
    got = choose(index_of(), Sampling(sampler="fps", fps=4), Segment(1.0, 2.0))

    assert got.instants_s.tolist() == [3.0, 3.25, 3.5, 3.75, 4.0]
    assert got.indices.tolist() == [10, 12, 15, 17, 20]


def test_every_keyframe_is_chosen_once():
    assert choose(index_of(), Sampling(num_frames=-1)).indices.tolist() == [0, 12, 24, 36]


def test_a_video_whose_frames_are_no_keyframes_shows_any():
    index = index_of(keyframes=())

    assert choose(index, Sampling(num_frames=2)).indices.tolist() == [0, 39]


def test_windows_leave_out_what_lies_between_them():
    every = Sampling(sampler="uniform", num_frames=-1)

    assert choose(index_of(), every, windows=((0.0, 0.1), (3.8, 9.0))).indices.tolist() == [0, 1, 38, 39]
    with pytest.raises(SamplingRefusedError):
        choose(index_of(), every, windows=((9.0, 9.5),))


@pytest.mark.parametrize("sampling", [UNIFORM, Sampling()])
def test_a_segment_of_a_video_without_times_is_refused(sampling):
    index = index_of(times=False, kind="decode")

    assert choose(index, sampling).indices.size
    with pytest.raises(SamplingRefusedError, match="no timestamps"):
        choose(index, sampling, Segment(1.0, 2.0))


def test_a_video_without_frames_is_refused():
    with pytest.raises(NoFramesError):
        choose(VideoIndex(info=HeaderInfo(), kind="decode", lists="frames"), UNIFORM)


@pytest.mark.parametrize(
    ("numbers", "segment", "indices"),
    [
        pytest.param((39, 0, 0), Segment(), [39, 0, 0], id="in any order, with repeats"),
        pytest.param((-1, -40), Segment(), [39, 0], id="from the end"),
        pytest.param((0, 9, -1), Segment(1.0, 1.9), [10, 19, 19], id="of a segment"),
    ],
)
def test_positions_are_those_of_the_linear_decode_or_in_a_segment(numbers, segment, indices):
    got = choose(index_of(), Sampling(), segment, wanted=Positions(numbers))

    assert got.indices.tolist() == indices


@pytest.mark.parametrize(("numbers", "missing"), [((0, 40), 40), ((0, -41), -41)])
def test_a_position_that_no_frame_has_is_refused_or_clipped(numbers, missing):
    with pytest.raises(SamplingRefusedError, match=f"There is no frame {missing}: the video has 40, numbered .* to 39"):
        choose(index_of(), Sampling(), wanted=Positions(numbers))
    assert choose(index_of(), Sampling(), wanted=Positions(numbers, clips=True)).indices.tolist() == [0]
    with pytest.raises(SamplingRefusedError):
        choose(index_of(), Sampling(), wanted=Positions(numbers[1:], clips=True))


def test_at_an_instant_the_frame_is_shown_that_began_last():
    index, seconds = index_of(), (99, 0, 0.09, 0.09995, 0.1, 0.19)

    assert choose(index, Sampling(), wanted=Instants(seconds)).indices.tolist() == [39, 0, 0, 1, 1, 1]
    with pytest.raises(SamplingRefusedError, match="ask for frames by their positions"):
        choose(index_of(times=False, kind="decode"), Sampling(), wanted=Instants(seconds))
