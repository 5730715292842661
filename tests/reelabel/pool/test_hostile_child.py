"""A decoding process taken over by its video costs that video its frames, and nothing else."""

import math
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import fields, replace

import numpy as np
import pytest

from reelabel.decode.canvas import Decoded
from reelabel.decode.render import View
from reelabel.errors import (
    DecoderCrashedError,
    DecoderTimeoutError,
    InvalidReplyError,
    ProcessDiedError,
    VideoError,
    VideoTooLargeError,
)
from reelabel.index import HeaderInfo, VideoIndex
from reelabel.options import Limits
from reelabel.pool import fork_server
from reelabel.pool import process as process_module
from reelabel.pool.decode_pool import DecodePool
from reelabel.pool.packing import unpack
from reelabel.pool.wire import Channel
from reelabel.sampling.options import Sampling
from reelabel.segment import WHOLE
from reelabel.sources.video_file import open_video_file
from tests.open_descriptors import open_descriptors
from tests.reelabel.pool import bad_child

WANTED = {"sampling": Sampling(num_frames=2), "limits": Limits()}


@pytest.fixture(scope="module")
def bad_pool():
    """A pool whose processes obey their videos, and could do anything that this user may."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fork_server, "CHILD_MODULE", bad_child.__name__)
        with DecodePool(processes=1, timeout_s=4, memory_mib=2048, threads=1, sandbox="off") as pool:
            yield pool


@pytest.fixture
def video(tmp_path):
    """Make a video that tells the process what to do."""

    def make(behaviour, *arguments):
        path = tmp_path / "hostile.mp4"
        path.write_text(" ".join(["do", behaviour, *map(str, arguments)]))
        return path

    return make


@pytest.mark.parametrize("change", [None, *bad_child.CHANGES])
def test_frames_that_no_honest_process_sends_are_refused(change):
    data, descriptor = bad_child.changed_answer(**bad_child.CHANGES.get(change, {}))
    try:
        with pytest.raises(InvalidReplyError) if change else nullcontext():
            assert len(unpack([Decoded, VideoIndex], data, descriptor, max_bytes=2 * 1024**3).images) == 2
    finally:
        os.close(descriptor)


INVALID = [
    "another_number_of_frames",
    "gigantic_shape",
    "too_many_dimensions",
    "a_side_beyond_numpy",
    "more_fields",
    "sealed_but_writable",
    "begin_forever",
    "deep_nesting",
    "descriptor_of_a_file",
    "descriptor_of_a_pipe",
    "endless_message",
    "error_of_the_store",
    "failed_read_that_was_none",
    "file_of_holes",
    "flood_of_descriptors",
    "garbage",
    "larger_frames",
    "no_descriptor",
    "reads_of_a_whole_video",
]


@pytest.mark.parametrize("behaviour", INVALID)
def test_an_invalid_answer_fails_its_video_and_stops_its_process(bad_pool, video, make_clip, behaviour):
    bad_pool.extract(make_clip(), **WANTED)
    before, descriptors = set(bad_pool.process_ids), len(open_descriptors())

    with pytest.raises(DecoderCrashedError, match=r"returned invalid data .*Treat the video as malicious\.$"):
        bad_pool.extract(video(behaviour), **WANTED)

    assert len(bad_pool.extract(make_clip(), **WANTED).unique) == 2
    assert not before & set(bad_pool.process_ids)
    assert len(open_descriptors()) <= descriptors


# A value of each field of an index, of what its header states and of each column, that no honest process sends.
WRONG_INDEX = {
    "info": "null",
    "kind": '"linear"',
    "lists": '"packets"',
    "keyframes": 3,
    "first_s": '"0"',
    "last_s": "true",
    "total_frames": -1,
    "is_whole": 0,
    "is_order_proven": "[true]",
    "doubt": 7,
    "note": '["x"]',
}
WRONG_MESSAGE = {"fields": "[]", "arrays": "{}"}
WRONG_INFO = {
    "container": 7,
    "codec": "null",
    "width_px": -1,
    "height_px": 2**31,
    "hdr": '"SDR"',
    "time_base": '"1/0"',
    "fps": -1.0,
    "duration_s": '"2"',
    "pixel_aspect": "NaN",
    "crop": "[0,0,0]",
    "frames": "true",
}
WRONG_COLUMNS = {
    "pos": "[-1,0]",
    "size": "[9,-9]",
    "order": "[0,2]",
    "position": "[-2,0]",
    "time_s": "[1.0,0.0]",
    "keyframe_s": "[0.0,NaN]",
    "is_keyframe": "[1,2]",
    "is_shown": "[7,1]",
}
WRONG = WRONG_INDEX | WRONG_INFO | WRONG_COLUMNS | WRONG_MESSAGE | {"colour": 3}


def test_each_field_of_an_index_has_a_wrong_value():
    assert WRONG_INDEX.keys() | bad_child.COLUMNS.keys() == {each.name for each in fields(VideoIndex)}
    assert WRONG_INFO.keys() == {each.name for each in fields(HeaderInfo)}
    assert WRONG_COLUMNS.keys() == bad_child.COLUMNS.keys() - {"pts"}  # which may be any


def test_an_index_that_an_honest_process_sends_is_taken(bad_pool, video):
    with open_video_file(video("index_with")) as file:
        index, _, _ = bad_pool.read_index(file, limits=Limits(), lists="keyframes")

    assert (index.times_ms.tolist(), index.info.codec) == ([0, 1000], "h264")


@pytest.mark.parametrize("name", [None, *WRONG])
def test_an_index_with_a_wrong_value_in_any_field_is_refused(name):
    data, descriptor = bad_child.changed_index(*((name, str(WRONG[name])) if name else ()))
    try:
        with pytest.raises(InvalidReplyError) if name else nullcontext():
            assert unpack([VideoIndex], data, descriptor, max_bytes=2 * 1024**3).info.codec == "h264"
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("name", ["pos", "info", "fields"])
def test_a_process_that_sends_a_wrong_index_is_stopped(bad_pool, video, make_clip, name):
    with (
        open_video_file(video("index_with", name, WRONG[name])) as file,
        pytest.raises(DecoderCrashedError, match=r"returned invalid data .*Treat the video as malicious\.$"),
    ):
        bad_pool.read_index(file, limits=Limits(), lists="keyframes")

    assert len(bad_pool.extract(make_clip(), **WANTED).unique) == 2


@pytest.mark.parametrize("behaviour", ["drip", "descriptors_in_the_body"])
def test_a_process_that_never_finishes_is_stopped(bad_pool, video, make_clip, behaviour):
    with pytest.raises(VideoError) as raised:
        bad_pool.extract(video(behaviour), **WANTED)

    assert isinstance(raised.value, DecoderTimeoutError | DecoderCrashedError)
    assert len(bad_pool.extract(make_clip(), **WANTED).unique) == 2


def test_descriptors_that_a_process_leaves_in_transit_delay_other_videos_and_fail_none(video, make_clip, monkeypatch):
    monkeypatch.setattr(fork_server, "CHILD_MODULE", bad_child.__name__)
    with DecodePool(processes=3, threads=1) as pool, ThreadPoolExecutor(1) as other:
        with (
            open_video_file(video("descriptors_in_transit")) as file,
            pool.acquire(file, Limits()) as decoder,
        ):
            decoder.decode(np.arange(2), View())
            waiting = other.submit(pool.extract, make_clip(), **WANTED)
            with pytest.raises(TimeoutError):
                waiting.result(1)

        assert len(waiting.result(60).unique) == 2


def test_a_process_that_sends_instead_of_receiving_is_not_waited_for():
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    until_s = time.monotonic() + 5
    channel.watch = lambda: 0.1 if time.monotonic() < until_s else pytest.fail("waited for")

    with theirs, closing(channel):
        theirs.sendall(b"!")
        with pytest.raises(ProcessDiedError):
            channel.send_bytes(bytes(2**24))


def test_nothing_sent_by_a_process_is_unpickled(bad_pool, video, tmp_path):
    with pytest.raises(DecoderCrashedError, match="invalid"):
        bad_pool.extract(video("pickle_bomb", tmp_path / "exploded"), **WANTED)

    assert not (tmp_path / "exploded").exists()


def test_an_answer_sent_ahead_is_not_taken_for_that_of_the_next_video(bad_pool, video, make_clip):
    assert bad_pool.extract(video("one_more_answer"), **WANTED).note == "taken over"

    assert bad_pool.extract(make_clip(), **WANTED).method == "index"


def test_text_from_a_process_cannot_control_a_terminal_or_break_a_row(bad_pool, video, make_clip, monkeypatch):
    assert bad_pool.extract(video("control_characters"), **WANTED).note == "?[2J?red"

    monkeypatch.setattr(process_module, "_BEGIN_S", 1.0)  # it does nothing for the next video
    assert len(bad_pool.extract(make_clip(), **WANTED).unique) == 2


class Bytes:
    """A source that counts what is read of it."""

    max_wait_s = math.inf

    def __init__(self, size_bytes):
        self.size_bytes = size_bytes
        self.reads = []

    def read(self, start, size):
        assert 0 <= start < start + size <= self.size_bytes
        self.reads.append((start, size))
        return bytes(size)


@pytest.mark.parametrize("size_bytes", [10_001, 10_000], ids=["outside the video", "too often"])
def test_reads_are_confined_to_the_video(bad_pool, make_clip, size_bytes):
    source = Bytes(size_bytes)
    wanted = WANTED | {"limits": replace(Limits(), max_frames=bad_child.BY_RANGES_ONLY)}

    with pytest.raises(DecoderCrashedError, match=r"invalid data \(reads outside the video"):
        bad_pool.extract_by_ranges(source, **wanted)

    assert len(source.reads) < 2000
    assert len(bad_pool.extract(make_clip(), **WANTED).unique) == 2


def test_no_sampler_chooses_among_more_frames_than_are_allowed(bad_pool, video):
    with pytest.raises(VideoTooLargeError, match="has more than 1 frames"):
        bad_pool.extract(video("control_characters"), sampling=Sampling(), limits=replace(Limits(), max_frames=1))


def test_no_frames_are_taken_that_are_larger_than_the_limit(bad_pool, video):
    with pytest.raises(DecoderCrashedError, match="another number or size"):
        bad_pool.extract(video("control_characters"), **WANTED | {"limits": replace(Limits(), max_frame_pixels=63)})


def test_a_killed_child_fails_only_its_video(bad_pool, video, make_clip):
    with pytest.raises(DecoderCrashedError, match=r"died twice \(exit code -9\)"):
        bad_pool.extract(video("die"), **WANTED)

    assert len(bad_pool.extract(make_clip(), **WANTED).unique) == 2


def test_a_child_killed_once_costs_its_video_nothing(bad_pool, video, tmp_path):
    with pytest.raises(VideoError, match="alive"):
        bad_pool.extract(video("die_once", tmp_path / "died"), **WANTED)


def test_a_hanging_child_is_stopped_in_time(bad_pool, video, make_clip):
    started = time.monotonic()

    with pytest.raises(DecoderTimeoutError, match=r"longer than 4 s; raise extract\.timeout_s"):
        bad_pool.extract(video("hang"), **WANTED)

    assert time.monotonic() - started < 10
    assert len(bad_pool.extract(make_clip(), **WANTED).unique) == 2


def test_memory_is_limited(bad_pool, video):
    with pytest.raises(DecoderCrashedError, match="memory_mib"):
        bad_pool.extract(video("allocate"), **WANTED)


def test_cpu_time_is_limited_separately_for_each_video(video, monkeypatch):
    monkeypatch.setattr(fork_server, "CHILD_MODULE", bad_child.__name__)
    with DecodePool(processes=1, timeout_s=30, memory_mib=2048, cpu_s=1, sandbox="off") as pool:
        with pytest.raises(DecoderTimeoutError, match="1 s of CPU time"):
            pool.extract(video("burn", 10), **WANTED)

        for _ in range(2):
            with pytest.raises(VideoError, match="burnt"):
                pool.extract(video("burn", 0.6), **WANTED)


@pytest.mark.parametrize("behaviour", ["another_number_of_frames", "sealed_but_writable", "longer_file", "more_fields"])
def test_a_process_that_answers_a_later_piece_with_something_invalid_is_not_used_again(bad_pool, video, behaviour):
    decoder, path = bad_pool.in_pieces(), video(behaviour)
    assert len(decoder.extract(path, segment=WHOLE, **WANTED).unique) == 2
    [before] = bad_pool.process_ids

    with pytest.raises(DecoderCrashedError, match="Treat the video as malicious"):
        decoder.extract(path, segment=WHOLE, **WANTED)
    decoder.close()

    assert before not in bad_pool.process_ids
