import json
from dataclasses import replace

import av
import numpy as np
import pytest

from benchmarks.extraction.loaders import FileParts
from reelabel.decode import read_index as reading
from reelabel.decode.read_index import read_index
from reelabel.errors import FallbackRequired, InvalidReplyError, VideoTooLargeError
from reelabel.index import VideoIndex
from reelabel.options import Limits
from reelabel.pool.packing import pack, unpack
from reelabel.segment import lie_in_windows
from reelabel.sources.sparse_file import SparseFile
from reelabel.sources.video_file import open_video_file


def read(path, lists="frames", **options):
    with open_video_file(path) as file:
        return read_index(file, Limits(), lists=lists, **options)[0]


@pytest.mark.parametrize(("name", "kind"), [("clip.mp4", "container"), ("clip.mkv", "packets")])
def test_frames_are_those_of_the_demuxer(make_clip, name, kind):
    clip = make_clip(name, b_frames=2)

    got = read(clip)

    with av.open(str(clip)) as container:
        stream = container.streams.video[0]
        packets = sorted((p.pts, p.size, p.is_keyframe, p.pos) for p in container.demux(stream) if p.size)
        times_ms = [int(pts * stream.time_base * 1000) for pts, *_ in packets]
    assert (got.kind, got.total_frames) == (kind, len(packets))
    assert np.abs(got.times_ms - times_ms).max() <= 1
    assert got.sizes_bytes.tolist() == [size for _, size, *_ in packets]
    assert got.shown_keyframes.tolist() == [flag for _, _, flag, _ in packets]
    assert got.pos[got.order].tolist() == [pos for *_, pos in packets]


def test_a_stream_whose_packets_have_times_is_demuxed(make_clip):
    got = read(make_clip("clip.ts"))

    assert got.kind == "packets"
    assert got.doubt


def test_a_large_file_is_passed_over_only_if_that_is_asked_for(make_clip, monkeypatch):
    clip = make_clip("clip.mkv")
    for size_bytes in (clip.stat().st_size, clip.stat().st_size - 1):
        monkeypatch.setattr(reading, "WHOLE_BYTES", size_bytes)
        assert read(clip, of_any_size=True).kind == "packets"
        if size_bytes == clip.stat().st_size:
            assert read(clip).kind == "packets"
            continue
        with pytest.raises(FallbackRequired, match="too large to pass over"):
            read(clip)


def test_keyframes_that_no_index_lists_are_those_of_the_packets_unless_the_file_is_large(make_clip, monkeypatch):
    clip = make_clip("clip.mkv")
    clip.write_bytes(clip.read_bytes()[:-100])  # without its last cues
    small = read(clip, "keyframes")
    monkeypatch.setattr(reading, "WHOLE_BYTES", 0)
    large = read(clip, "keyframes")

    assert (small.kind, small.is_listed, small.keyframes) == ("packets", True, 4)
    assert (large.is_listed, large.keyframes, large.info) == (False, 0, small.info)
    assert small.note == large.note == "the file is cut short, so what is left of it must be counted"


def test_more_packets_than_the_limit_of_frames_are_not_listed(make_clip):
    clip = make_clip("clip.mkv", frames=48)

    with open_video_file(clip) as file:
        assert read_index(file, Limits(max_frames=48), lists="frames")[0].total_frames == 48
        with pytest.raises(VideoTooLargeError, match="has more than 47 frames"):
            read_index(file, Limits(max_frames=47), lists="frames")


def test_packets_without_times_are_not_listed(make_clip):
    with pytest.raises(FallbackRequired):
        read(make_clip("clip.h264"))


@pytest.mark.parametrize("lists", ["frames", "keyframes"])
def test_an_index_arrives_unchanged(make_clip, lists):
    sent = read(make_clip(b_frames=2), lists)

    got = unpack([VideoIndex], *pack(sent), max_bytes=10**6)

    for name in VideoIndex.__slots__:
        np.testing.assert_array_equal(getattr(got, name), getattr(sent, name), name)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("size", -1),
        ("pos", -1),
        ("order", 99),
        ("order", -1),
        ("position", -2),
        ("time_s", np.nan),
        ("time_s", 1e9),
        ("keyframe_s", 1e9),
        ("is_keyframe", 2),
        ("is_shown", 7),
    ],
)
def test_an_index_that_contradicts_itself_is_refused(make_clip, column, value):
    sent = read(make_clip())
    columns = np.array(getattr(sent, column), np.uint8 if column.startswith("is_") else None)
    columns[1] = value
    object.__setattr__(sent, column, columns)

    with pytest.raises(InvalidReplyError):
        unpack([VideoIndex], *pack(sent), max_bytes=10**6)


@pytest.mark.parametrize("shapes", [{"pts": [10**6]}, {"order": [5]}, {"keyframe_s": [9]}, {"keyframe_s": None}])
def test_columns_that_are_missing_are_noticed(make_clip, shapes):
    data, descriptor = pack(read(make_clip()))
    message = json.loads(data)
    arrays = message["arrays"] | shapes
    message["arrays"] = {name: shape for name, shape in arrays.items() if shape is not None}

    with pytest.raises(InvalidReplyError):
        unpack([VideoIndex], json.dumps(message).encode(), descriptor, max_bytes=10**8)


def test_columns_of_other_shapes_are_no_index(make_clip):
    index = read(make_clip())

    with pytest.raises(ValueError, match="columns are"):
        replace(index, size=index.size[:-1])


def test_a_large_remote_recording_without_cues_is_described_and_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr("reelabel.sources.sparse_file.SMALL_BYTES", 0)
    path = tmp_path / "recording.mkv"
    with av.open(str(path), "w", options={"live": "1"}) as container:
        stream = container.add_stream("rawvideo", rate=10, width=160, height=120, pix_fmt="yuv420p")
        for _ in range(100):
            container.mux(stream.encode(av.VideoFrame(160, 120, "yuv420p")))

    index, ranges = read_index(SparseFile(FileParts(path)), Limits(), lists="keyframes")

    assert (index.info.codec, index.info.fps, index.is_listed, ranges) == ("rawvideo", 10, False, ())
    assert index.note == "the required ranges cover most of the file"


def test_windows_include_both_ends_and_nothing_between():
    times = np.array([-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5])

    assert lie_in_windows(times, ((0.0, 0.5), (2.0, 2.2))).tolist() == [False, True, True, False, False, True, False]
