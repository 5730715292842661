"""Recordings joined end to end: the timestamps of the second start again, and the header knows only the first."""

import struct

import numpy as np
import pytest

from benchmarks.exactness.conformance import check_file
from benchmarks.exactness.linear import decode_linearly, digest_pixels
from benchmarks.media.matrix import Cell
from reelabel.extract import extract_keyframes
from reelabel.integrations.vllm.video_input import video_input
from reelabel.sampled_frames import NO_PTS
from reelabel.sampling.options import Sampling

JOINED = [Cell("ts", "h264"), Cell("ps", "mpeg2", "b-frames"), Cell("ps", "mpeg4", "b-frames"), Cell("ogg", "vp8")]
CLUSTER, TIMESTAMP = b"\x1f\x43\xb6\x75", b"\xe7"  # elements of Matroska
SAMPLERS = ["keyframes", "uniform", "fps", "num_frames", "qwen2_vl"]


@pytest.mark.parametrize("cell", JOINED, ids=lambda cell: cell.name)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_frames_come_in_order_of_time_and_the_length_covers_them_all(tmp_path, cell, sampler):
    path = tmp_path / "clip"
    path.write_bytes(2 * cell.make())

    got = extract_keyframes(path, sampling=Sampling(sampler=sampler, num_frames=8))
    plain = extract_keyframes(path, sampling=Sampling(sampler="uniform", num_frames=512), native=True)

    assert (np.diff(got.time_s) >= 0).all()
    assert (np.diff(got.picks) >= 0).all()
    if got.deviation_s is not None:
        assert np.abs(got.deviation_s).max() <= 0.5 / 25 + 1e-6
    told = video_input(got)[1]
    assert (np.diff(told["frames_indices"]) >= 0).all()
    assert told["duration"] >= np.ptp(plain.time_s)
    shown = np.array(told["frames_indices"]) / told["fps"]
    assert np.abs(shown - (got.time_s[got.picks] - got.time_s[0])).max() < 0.1 / 25


def test_pixels_stay_with_their_times(tmp_path):
    path = tmp_path / "clip"
    path.write_bytes(2 * Cell("ts", "h264").make())

    got = extract_keyframes(path, sampling=Sampling(), native=True, every=True)

    assert got.frame_index.tolist() == [0, 40, 10, 50, 20, 60, 30, 70]
    assert all(np.array_equal(got.images[row], got.images[row + 1]) for row in range(0, 8, 2))


def test_a_frame_without_a_timestamp_is_timed_by_the_frame_rate(tmp_path):
    """In MPEG-PS, only some frames of H.264 have one, and the first is not at zero."""
    path = tmp_path / "clip"
    path.write_bytes(Cell("ps", "h264").make())

    got = extract_keyframes(path, sampling=Sampling(), native=True, every=True)

    assert NO_PTS in got.pts
    assert got.frame_index.tolist() == [0, 10, 20, 30]
    assert np.diff(got.time_s) == pytest.approx([0.4, 0.4, 0.4])


@pytest.mark.parametrize("structure", ["plain", "b-frames-h264"])
def test_fragments_whose_times_jump_back_are_shown_in_full(tmp_path, structure):
    """They begin again a fifth of a second later, so that no two frames share a time."""
    data = Cell("fmp4", "h264", structure).make()
    data = data[: data.index(b"mfra") - 4]
    again = bytearray(data[data.index(b"moof") - 4 :])
    at = again.find(b"tfdt")
    while at >= 0:
        (time,) = struct.unpack_from(">Q", again, at + 8)
        struct.pack_into(">Q", again, at + 8, time + 512 * 5 + 7)
        at = again.find(b"tfdt", at + 1)

    assert_all_are_shown(tmp_path, data + again)


def test_clusters_whose_times_jump_back_are_shown_in_full(tmp_path):
    data = Cell("webm", "vp9", "no-index").make()
    again = bytearray(data[data.index(CLUSTER) :])
    at = again.find(CLUSTER)
    while at >= 0:
        length = again[again.index(TIMESTAMP, at) + 1] & 0x7F
        again[again.index(TIMESTAMP, at) + 1 + length] += 47
        at = again.find(CLUSTER, at + 1)

    assert_all_are_shown(tmp_path, data + again)


def assert_all_are_shown(tmp_path, data):
    path = tmp_path / "clip"
    path.write_bytes(data)

    got = extract_keyframes(path, sampling=Sampling(sampler="uniform", num_frames=-1), native=True)
    linear = decode_linearly(path).frames

    assert check_file(path).faults == ()
    assert len(got.images) == len(linear) > 40
    for row, index in enumerate(got.frame_index):
        assert digest_pixels(got.images[row]) == linear[index].digest
    assert (np.diff(got.time_s) >= 0).all()
