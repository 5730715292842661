"""Chunks cover a video once, and every frame is in one of them."""

import numpy as np
import pytest

from tasks.description.chunks import assign_frames, cut_chunks


@pytest.mark.parametrize(
    ("duration_s", "lengths"),
    [
        pytest.param(25.0, [10, 10, 5], id="a short last one"),
        pytest.param(20.0, [10, 10], id="whole"),
        pytest.param(20.0004, [10, 10], id="whole but for rounding"),
        pytest.param(3.0, [3], id="shorter than a chunk"),
        pytest.param(0.0, [0], id="one frame"),
    ],
)
def test_chunks_are_of_equal_length_but_for_the_last(duration_s, lengths):
    chunks = cut_chunks(duration_s, chunk_s=10, start_s=5)

    assert [round(chunk.duration_s, 2) for chunk in chunks] == lengths
    assert [chunk.start_s for chunk in chunks] == [5 + 10 * number for number in range(len(lengths))]


@pytest.mark.parametrize(("duration_s", "chunk_s"), [(-1, 10), (float("nan"), 10), (10, 0), (float("inf"), 10)])
def test_a_length_that_makes_no_sense_is_refused(duration_s, chunk_s):
    with pytest.raises(ValueError, match="cannot cut"):
        cut_chunks(duration_s, chunk_s=chunk_s)


def test_frames_are_asked_for_evenly_and_inside_the_chunk():
    times_s = cut_chunks(20, chunk_s=10)[1].times_s(4)

    assert times_s.tolist() == [11.25, 13.75, 16.25, 18.75]


def test_every_frame_is_in_one_chunk_and_a_chunk_may_have_none():
    pts_ms = np.array([-40, 0, 9_999, 10_000, 31_000])

    parts = assign_frames(cut_chunks(30, chunk_s=10), pts_ms)

    assert [pts_ms[part].tolist() for part in parts] == [[-40, 0, 9_999], [10_000], [31_000]]
    assert assign_frames(cut_chunks(30, chunk_s=10), pts_ms[[0, 4]]) == [slice(0, 1), slice(1, 1), slice(1, 2)]
