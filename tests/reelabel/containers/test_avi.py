"""Keyframes of AVI files through their index, and when an index is not to be trusted."""

import struct

import av
import numpy as np
import pytest

from benchmarks.exactness.conformance import check_file
from reelabel.extract import extract_local
from reelabel.options import Limits
from reelabel.sampling.options import Sampling

FRAMES, GOP = 48, 12


def extract(path, *, num_frames=4):
    return extract_local(path, sampling=Sampling(num_frames=num_frames), limits=Limits(), as_stored=True)


def assert_is_linear(got, linear):
    times = [pts for pts, _, _ in linear]
    for image, pts in zip(got.unique, got.selection.pts.tolist(), strict=True):
        np.testing.assert_array_equal(image, linear[times.index(pts)][2])


@pytest.fixture
def clip(make_clip):
    return make_clip("clip.avi", codec="mpeg4", frames=FRAMES, gop=GOP)


def chunk_at(path, number):
    """Say where the chunk of a frame begins, and how long its packet is."""
    with av.open(str(path)) as container:
        packet = [packet for packet in container.demux(video=0) if packet.size][number]
        return packet.pos - 8, packet.size


def index_entry(data, number):
    """Say where the old index has the entry of a chunk."""
    return data.index(b"idx1") + 8 + 16 * number


def test_keyframes_are_read_through_the_index(clip, decode_linearly):
    got = extract(clip)

    assert (got.method, got.note, got.selection.keyframes_in_file) == ("index", "", FRAMES // GOP)
    assert got.selection.pts.tolist() == [0, 12, 24, 36]
    assert_is_linear(got, decode_linearly(clip))


def test_frames_that_may_be_reordered_are_not_read_through_the_index(make_clip, decode_linearly):
    path = make_clip("clip.avi", codec="mpeg4", b_frames=2)

    got = extract(path)

    assert got.method == "linear"
    assert "presentation order differs from decode order" in got.note
    assert_is_linear(got, decode_linearly(path))


def test_an_index_that_omits_a_frame_is_not_trusted(clip, decode_linearly):
    data = bytearray(clip.read_bytes())
    at = index_entry(data, 5)
    (size,) = struct.unpack_from("<I", data, data.index(b"idx1") + 4)
    struct.pack_into("<I", data, data.index(b"idx1") + 4, size - 16)
    clip.write_bytes(data[:at] + data[at + 16 :])

    got = extract(clip)

    assert "the index does not match the chunks" in got.note
    assert_is_linear(got, decode_linearly(clip))


@pytest.mark.parametrize(
    ("flags", "reason"), [(0x10, "every packet is flagged as a keyframe"), (0, "the index lists no keyframe")]
)
def test_an_index_that_knows_no_keyframes_from_other_frames_is_not_trusted(clip, decode_linearly, flags, reason):
    data = bytearray(clip.read_bytes())
    for number in range(FRAMES):
        struct.pack_into("<I", data, index_entry(data, number) + 4, flags)
    clip.write_bytes(data)

    got = extract(clip)

    assert (got.method, got.selection.frame_index.tolist()) == ("linear", [0, 12, 24, 36])
    assert reason in got.note
    assert_is_linear(got, decode_linearly(clip))


def test_a_frame_lost_between_keyframes_shifts_all_later_times(clip, decode_linearly):
    data = bytearray(clip.read_bytes())
    position, _ = chunk_at(clip, 17)
    data[position : position + 4] = b"lost"
    clip.write_bytes(data)

    got = extract(clip)

    assert got.method == "linear"
    assert got.selection.pts.tolist() == [0, 12, 23, 35]
    assert_is_linear(got, decode_linearly(clip))


def test_empty_chunks_count_as_frames_of_time(make_clip, decode_linearly, tmp_path):
    """A frame that repeats the one before it is an empty chunk, and counts."""
    path, sparse = make_clip("clip.avi", codec="mpeg4"), tmp_path / "sparse.avi"
    with av.open(str(path)) as reader, av.open(str(sparse), "w") as writer:
        stream = writer.add_stream_from_template(reader.streams.video[0])
        for packet in reader.demux(video=0):
            if packet.size:
                packet.pts = packet.dts = packet.dts * 3
                packet.stream = stream
                writer.mux(packet)

    got = extract(sparse)

    assert (got.method, got.selection.pts.tolist()) == ("index", [0, 36, 72, 108])
    assert_is_linear(got, decode_linearly(sparse))


@pytest.mark.parametrize(("suffix", "tag"), [(".avi", None), (".mov", "raw ")])
def test_pictures_whose_palette_is_in_the_header_have_its_colours(tmp_path, suffix, tag):
    path = tmp_path / f"clip{suffix}"
    palette = np.random.default_rng(0).integers(0, 256, (256, 4), np.uint8)
    palette[:, 0] = 255
    with av.open(str(path), "w") as container:
        stream = container.add_stream("rawvideo", rate=12)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "pal8"
        if tag:
            stream.codec_context.codec_tag = tag
        for number in range(24):
            indices = np.arange(64 * 48, dtype=np.int64).reshape(48, 64) + number
            container.mux(stream.encode(av.VideoFrame.from_ndarray((indices.astype(np.uint8), palette), "pal8")))
        container.mux(stream.encode())

    assert check_file(path).faults == ()
    dense = extract_local(path, sampling=Sampling(sampler="uniform", num_frames=5), as_stored=True)
    assert dense.method == "linear"
