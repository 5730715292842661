"""Videos that are decoded piece by piece: each piece is what it is alone, and a linear decode is made once for all."""

import os
import signal
import time
from dataclasses import fields

import numpy as np
import pytest

from benchmarks.media.matrix import Cell
from reelabel.errors import SamplingRefusedError
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.result import Selection
from reelabel.sampling.options import Sampling
from reelabel.segment import WHOLE, Segment
from tests.clips import blank_packet

FPS, FRAMES = 12, 96
PIECES = [Segment.of(start, start + 1.999) for start in (0.0, 2.0, 4.0)] + [Segment.of(6.0, None)]
MIDDLES = Sampling(sampler="middles", num_frames=4)
KEYFRAMES = Sampling(num_frames=2)
AUTO = Sampling(sampler="auto", num_frames=2, min_keyframes=2)
COSTS = {"decode_ms", "frames_decoded", "note"}  # which differ by how a frame was come by


@pytest.fixture(scope="module")
def pool():
    with DecodePool(processes=1) as pool:
        yield pool


def extract(pool, path, pieces=PIECES, sampling=MIDDLES):
    decoder = pool.in_pieces()
    try:
        return [decoder.extract(path, sampling=sampling, limits=Limits(), segment=piece) for piece in pieces]
    finally:
        decoder.close()


def require_same(got, expected):
    np.testing.assert_array_equal(got.unique, expected.unique)
    for name in {field.name for field in fields(Selection)} - COSTS:
        found, wanted = getattr(got.selection, name), getattr(expected.selection, name)
        assert np.array_equal(found, wanted) if isinstance(wanted, np.ndarray) else found == wanted, name


@pytest.mark.parametrize("sampling", [MIDDLES, KEYFRAMES, AUTO], ids=["middles", "keyframes", "auto"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("clip.mp4", {}, id="mp4"),
        pytest.param("clip.ts", {"b_frames": 2}, id="ts"),
        pytest.param("clip.ts", {"codec": "mpeg2video", "b_frames": 2}, id="ts of mpeg-2"),
        pytest.param("clip.h264", {"b_frames": 2}, id="raw h.264"),
        pytest.param("clip.flv", {}, id="flv"),
    ],
)
def test_pieces_are_those_of_separate_extractions_byte_for_byte(pool, make_clip, name, options, sampling):
    path = make_clip(name, frames=FRAMES, **options)
    pieces = [Segment(0.0, 0.999), Segment(1.0, 2.499), Segment(2.5, None)]  # a raw stream has 25 frames a second

    got = extract(pool, path, pieces, sampling)

    assert sum(each.cost.frames_decoded for each in got) <= 2 * FRAMES
    for piece, found in zip(pieces, got, strict=True):
        require_same(found, pool.extract(path, sampling=sampling, limits=Limits(), segment=piece))


def test_all_pieces_are_decoded_in_one_pass_after_the_one_that_lists_the_frames(pool, make_clip, decode_linearly):
    path = make_clip("clip.ts", frames=FRAMES)

    got = extract(pool, path)

    assert [each.method for each in got] == ["linear"] * 4
    assert FRAMES + 90 <= sum(each.cost.frames_decoded for each in got) <= 2 * FRAMES
    shown = decode_linearly(path)
    at = [position for each in got for position in each.selection.frame_index.tolist()]
    assert [pts for each in got for pts in each.selection.pts.tolist()] == [shown[position][0] for position in at]
    assert at == sorted(set(at))
    assert len(at) == 16


def test_a_fragmented_mp4_is_not_demuxed_for_each_piece(pool, tmp_path):
    path = tmp_path / "clip.mp4"
    path.write_bytes(Cell("fmp4", "h264").make())
    pieces = [Segment(0.0, 0.79), Segment(0.8, None)]

    got = extract(pool, path, pieces)

    assert [each.method for each in got] == ["linear"] * 2
    for piece, found in zip(pieces, got, strict=True):
        alone = pool.extract(path, sampling=MIDDLES, limits=Limits(), segment=piece)
        assert alone.method == "seek"
        assert np.array_equal(found.unique, alone.unique)
    assert [each.method for each in extract(pool, path, [WHOLE])] == ["seek"]


def test_frames_that_were_passed_are_decoded_in_another_pass(pool, make_clip):
    path = make_clip("clip.ts", frames=FRAMES)
    forth, back = extract(pool, path), extract(pool, path, PIECES[::-1])

    for found, wanted in zip(back[::-1], forth, strict=True):
        require_same(found, wanted)


def test_a_piece_without_a_frame_has_the_last_one_before_it_and_nothing_is_decoded_again(pool, make_clip):
    path = make_clip("clip.ts", frames=FRAMES, fps=1)
    got = extract(pool, path, [Segment(0.0, 3.5), Segment(3.6, 3.7), Segment(3.8, 3.9), Segment(3.95, 6.5)])

    assert [each.selection.frame_index.tolist() for each in got] == [[0, 1, 2, 3], [3], [3], [4, 5, 6]]
    assert sum(each.cost.frames_decoded for each in got) == FRAMES + 7


def test_a_damaged_file_is_decoded_in_order_from_the_first_piece_that_needs_it(pool, make_clip):
    path = make_clip("clip.mp4", frames=FRAMES)
    blank_packet(path, 50)

    got = extract(pool, path)

    assert [each.method for each in got] == ["seek", "seek", "linear", "linear"]
    for piece, found in zip(PIECES, got, strict=True):
        expected = pool.extract(path, sampling=MIDDLES, limits=Limits(), segment=piece)
        assert np.array_equal(found.unique, expected.unique)


def test_the_process_serves_other_videos_afterwards_also_after_a_piece_that_fails(pool, make_clip):
    path = make_clip("clip.ts", frames=FRAMES)
    extract(pool, path)
    [before] = pool.process_ids

    extract(pool, path, PIECES[:1])
    with pytest.raises(SamplingRefusedError, match="starts at 60 s"):
        extract(pool, path, [*PIECES[:2], Segment(60.0, 61.0)])

    assert len(pool.extract(path, sampling=MIDDLES, limits=Limits()).unique) == 4
    assert pool.process_ids == [before]


def test_a_process_that_dies_between_two_pieces_is_replaced(pool, make_clip):
    path = make_clip("clip.ts", frames=FRAMES)
    expected = extract(pool, path)
    decoder = pool.in_pieces()
    got = []
    for piece in PIECES:
        got.append(decoder.extract(path, sampling=MIDDLES, limits=Limits(), segment=piece))
        if len(got) == 2:
            [lent] = pool.process_ids
            os.kill(lent, signal.SIGKILL)
    decoder.close()

    for found, wanted in zip(got, expected, strict=True):
        require_same(found, wanted)


def test_a_long_video_may_take_a_time_limit_for_each_of_its_minutes():
    with DecodePool(processes=1, timeout_s=10, cpu_s=20, ahead=False) as pool:
        allowed = [pool.in_pieces(length_s=length_s).allowed for length_s in (0.0, 59.0, 90.0, 600.0)]

    assert [(each.timeout_s, each.cpu_s, each.reading_s) for each in allowed] == [
        (10, 20, 0),
        (10, 20, 0),
        (15, 30, 0),
        (100, 200, 0),
    ]


def test_the_time_between_two_pieces_is_not_that_of_the_video(pool, make_clip, monkeypatch):
    path, clock = make_clip("clip.ts", frames=FRAMES), time.monotonic
    decoder = pool.in_pieces()
    decoder.extract(path, sampling=MIDDLES, limits=Limits(), segment=PIECES[0])
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 10_000)

    decoder.extract(path, sampling=MIDDLES, limits=Limits(), segment=PIECES[1])
    decoder.close()
