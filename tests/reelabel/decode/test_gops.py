"""Only the GOPs of wanted frames are decoded and read, in few runs and ranges."""

import numpy as np
import pytest

from reelabel.decode.gops import needed_ranges, spans_to_decode
from reelabel.errors import FallbackRequired
from reelabel.index import HeaderInfo, VideoIndex
from reelabel.sources.sparse_file import BLOCK_BYTES

KEYFRAMES = [0, 12, 24, 36]


@pytest.mark.parametrize(
    ("positions", "spans"),
    [
        pytest.param([3, 5, 14, 25, 26], [(0, 5), (12, 14), (24, 26)], id="each from its keyframe"),
        pytest.param([12], [(12, 12)], id="a keyframe alone"),
        pytest.param([3, 11, 12], [(0, 12)], id="into the next GOP without a gap"),
        pytest.param([3, 10, 12], [(0, 10), (12, 12)], id="past the last frame of a GOP"),
        pytest.param([5, 5, 39], [(0, 5), (36, 39)], id="twice the same"),
    ],
)
def test_a_run_begins_at_a_keyframe_and_ends_at_a_wanted_frame(positions, spans):
    assert spans_to_decode(positions, KEYFRAMES) == spans


@pytest.mark.parametrize(
    ("piece_frames", "spans"), [(24, [(0, 23), (24, 47)]), (25, [(0, 35), (36, 47)]), (1, [(0, 11), (12, 23)])]
)
def test_runs_are_cut_where_a_gop_begins_so_many_frames_after_their_start(piece_frames, spans):
    assert spans_to_decode(range(48), KEYFRAMES, piece_frames=piece_frames)[:2] == spans


def index_of(*, size, keyframes=tuple(KEYFRAMES), frames=48, gap=0, order=None):
    """Return an index of frames that are stored in decode order, each followed by so many other bytes."""
    order = np.arange(frames) if order is None else order
    is_keyframe = np.zeros(frames, np.bool_)
    is_keyframe[order[list(keyframes)]] = True
    return VideoIndex(
        info=HeaderInfo(fps=10.0, duration_s=frames / 10, width_px=64, height_px=48),
        kind="packets",
        lists="frames",
        pts=np.argsort(order),
        is_keyframe=is_keyframe,
        is_shown=np.ones(frames, np.bool_),
        pos=np.arange(frames, dtype=np.int64) * (size + gap),
        size=np.full(frames, size),
        order=order,
        time_s=np.arange(frames) / 10,
        position=np.arange(frames),
        keyframe_s=np.array(keyframes) / 10,
        keyframes=len(keyframes),
        first_s=0.0,
    )


def ranges(index, *indices):
    return [(each.start, each.end) for each in needed_ranges(index, np.array(indices))]


LARGE, SMALL = 2 * BLOCK_BYTES, 1000


def test_what_lies_between_the_needed_packets_is_read_only_if_that_is_cheaper_than_a_request():
    large, small = index_of(size=LARGE), index_of(size=SMALL)

    assert ranges(large, 2, 14) == [(0, 3 * LARGE), (12 * LARGE, 15 * LARGE)]
    assert ranges(small, 2, 14) == [(0, 15 * SMALL)]
    assert ranges(small, 14) == [(12 * SMALL, 15 * SMALL)]


def test_the_rest_of_a_gop_is_read_on_if_the_next_one_is_needed_and_it_is_small():
    spread, size = BLOCK_BYTES + 1, 14_000  # nine packets are at most 128 KiB
    index, larger = index_of(size=size, gap=spread), index_of(size=size + 600, gap=spread)

    assert len(ranges(index, 2, 14)) == 15
    assert len(ranges(index, 2, 26)) == 3 + 3
    assert len(ranges(larger, 2, 14)) == 3 + 3


def test_sound_between_pictures_is_read_with_them():
    assert ranges(index_of(size=LARGE, gap=BLOCK_BYTES), 1) == [(0, 2 * LARGE + BLOCK_BYTES)]
    assert len(ranges(index_of(size=LARGE, gap=BLOCK_BYTES + 1), 1)) == 2


def test_a_frame_needs_what_is_stored_before_it_whatever_is_shown_before_it():
    order = np.array([0, 3, 1, 2, *range(4, 48)])  # the second frame shown is the fourth one stored

    assert ranges(index_of(size=LARGE, order=order), 1) == [(0, 4 * LARGE)]
    assert ranges(index_of(size=LARGE, order=order), 2) == [(0, 2 * LARGE)]


def test_a_video_that_was_read_already_needs_nothing():
    assert ranges(index_of(size=0), 5) == []


def test_a_video_in_too_many_pieces_is_downloaded_instead():
    index = index_of(size=LARGE, frames=1026, keyframes=range(1026))

    assert len(ranges(index, *range(0, 1024, 2))) == 512
    with pytest.raises(FallbackRequired, match="scattered"):
        ranges(index, *range(0, 1026, 2))
