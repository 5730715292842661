from dataclasses import replace

import av
import numpy as np
import pytest

from reelabel.errors import FastPathUnavailableError, InvalidAnswerError
from reelabel.limits import Limits
from reelabel.packet_list import read_packet_list
from reelabel.pool.packet_lists import pack_packets, unpack_packets
from reelabel.segment import lie_in_windows
from reelabel.sources.video_file import open_video_file


@pytest.mark.parametrize(("name", "listed"), [("clip.mp4", "index"), ("clip.mkv", "packets")])
def test_packets_are_those_of_the_demuxer(make_clip, name, listed):
    clip = make_clip(name, b_frames=2)

    with open_video_file(clip) as file:
        got = read_packet_list(file, Limits())

    with av.open(str(clip)) as container:
        stream = container.streams.video[0]
        packets = sorted((p.pts, p.size, p.is_keyframe) for p in container.demux(stream) if p.size)
        times_ms = [int(pts * stream.time_base * 1000) for pts, _, _ in packets]
    assert got.listed == listed
    assert np.abs(got.times_ms - times_ms).max() <= 1
    assert got.sizes_bytes.tolist() == [size for _, size, _ in packets]
    assert got.is_keyframe.tolist() == [flag for _, _, flag in packets]


def test_a_stream_whose_packets_have_times_is_demuxed(make_clip):
    with open_video_file(make_clip("clip.ts")) as file:
        assert read_packet_list(file, Limits()).listed == "packets"


def test_packets_without_times_are_not_listed(make_clip):
    with open_video_file(make_clip("clip.h264")) as file, pytest.raises(FastPathUnavailableError):
        read_packet_list(file, Limits())


def test_a_list_that_contradicts_itself_is_refused(make_clip):
    with open_video_file(make_clip()) as file:
        got = read_packet_list(file, Limits())
    got.sizes_bytes[3] = -1
    message, descriptor = pack_packets(got)

    with pytest.raises(InvalidAnswerError, match="wrong values"):
        unpack_packets(message, descriptor, max_bytes=10**6)
    with pytest.raises(InvalidAnswerError):
        unpack_packets(replace(message, count=10**6), descriptor, max_bytes=10**6)


def test_windows_include_both_ends_and_nothing_between():
    times = np.array([-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5])

    assert lie_in_windows(times, ((0.0, 0.5), (2.0, 2.2))).tolist() == [False, True, True, False, False, True, False]
