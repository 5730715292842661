"""Sample tables that are legal, but that no muxer of FFmpeg writes."""

import struct

import av
import pytest

from benchmarks.exactness.conformance import check_file
from benchmarks.extraction.loaders import FileParts
from benchmarks.media.boxes import replace_boxes
from benchmarks.media.matrix import Cell
from reelabel.extract import extract_local, extract_ranges
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.sources.sparse_file import CachedRange

FRAMES, FRAME_MS, TICKS = 40, 40, 512
EVERY_FRAME = Sampling(sampler="uniform", num_frames=FRAMES)
PAUSE = -1
PARTS = {
    "one after the other": [(15, 0), (25, 15)],
    "with a pause": [(20, 0), (10, PAUSE), (20, 20)],
    "at a keyframe": [(20, 0), (20, 20)],
    "without a keyframe": [(20, 0), (19, 21)],
    "the second before the first": [(20, 20), (20, 0)],
}


def box(kind, *parts):
    body = b"".join(parts)
    return struct.pack(">I4s", 8 + len(body), kind) + body


def listed(version_and_flags, form, entries):
    return struct.pack(">II", version_and_flags, len(entries)) + b"".join(struct.pack(form, *each) for each in entries)


def with_box(data, added):
    """Add a box to the sample table of a file whose only track is the last box but those of the user."""
    end = data.index(b"stbl") - 4
    end += int.from_bytes(data[end : end + 4])
    grown = bytearray(data[:end] + added + data[end:])
    for parent in (b"moov", b"trak", b"mdia", b"minf", b"stbl"):
        at = data.index(parent) - 4
        struct.pack_into(">I", grown, at, int.from_bytes(data[at : at + 4]) + len(added))
    return bytes(grown)


@pytest.mark.parametrize("structure", ["plain", "b-frames-h264"])
@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_an_edit_list_of_several_parts_hides_no_keyframe(tmp_path, structure, parts):
    path = tmp_path / "clip.mp4"
    first = 0 if structure == "plain" else 2 * TICKS
    edits = [(frames * FRAME_MS, PAUSE if at == PAUSE else first + at * TICKS, 1 << 16) for frames, at in parts]
    edts = box(b"elst", listed(0, ">IiI", edits))

    path.write_bytes(replace_boxes(Cell("mp4", "h264", structure).make(), {b"edts": edts}))

    assert check_file(path).faults == ()


@pytest.mark.parametrize("kind", ["stps", "rap", "rap, version 1"])
def test_keyframes_that_begin_an_open_gop_may_be_listed_apart(tmp_path, decode_linearly, kind):
    data = Cell("mp4", "h264", "open-gop-h264").make()
    path = tmp_path / "clip.mp4"
    path.write_bytes(data)
    with av.open(str(path)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
    keyframes = [number for number, packet in enumerate(packets) if packet.is_keyframe]
    runs = [(1, int(number in keyframes[1:])) for number in range(len(packets))]
    added = {
        "stps": box(b"stps", listed(0, ">I", [(number + 1,) for number in keyframes[1:]])),
        "rap": box(b"sbgp", b"\0\0\0\0rap ", listed(0, ">II", runs)[4:]),
        "rap, version 1": box(b"sbgp", b"\1\0\0\0rap \0\0\0\0", listed(0, ">II", runs)[4:]),
    }
    path.write_bytes(with_box(replace_boxes(data, {b"stss": listed(0, ">I", [(1,)])}), added[kind]))
    are_key = [is_key for _, is_key, _ in decode_linearly(path)]
    assert sum(are_key) == len(keyframes) > 3

    local = extract_local(path, sampling=EVERY_FRAME)
    parts, _ = extract_ranges(
        FileParts(path), sampling=EVERY_FRAME, limits=Limits(), known=[CachedRange(0, path.read_bytes())]
    )

    for got in (local, parts):
        assert got.selection.is_keyframe.tolist() == are_key
        assert got.selection.keyframes_in_file == len(got.selection.keyframe_ms) == len(keyframes)
    assert check_file(path).faults == ()


def test_keyframes_of_joined_cuts_are_shown_when_their_frames_are(tmp_path):
    """The second half begins before the first has ended, as where FFmpeg joins cuts that it did not encode again."""
    offsets = box(b"ctts", listed(0, ">II", [(20, 10 * TICKS), (20, 5 * TICKS // 2)]))
    path = tmp_path / "clip.mp4"
    path.write_bytes(with_box(Cell("mp4", "h264").make(), offsets))

    keyframes, every = (extract_local(path, sampling=each) for each in (Sampling(num_frames=-1), EVERY_FRAME))

    assert keyframes.time_s == pytest.approx(every.time_s[every.is_keyframe])
    assert "timestamps are set back 1 time" in keyframes.note
    assert check_file(path).faults == ()


def test_samples_without_a_byte_are_not_counted(tmp_path):
    data = Cell("mp4", "h264").make()
    path = tmp_path / "clip.mp4"
    path.write_bytes(data)
    with av.open(str(path)) as container:
        packets = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    sizes = [(0 if number in {13, 27} else size,) for number, (_, size) in enumerate(packets)]
    tables = {
        b"stsz": struct.pack(">II", 0, 0) + listed(0, ">I", sizes)[4:],
        b"stsc": listed(0, ">III", [(1, 1, 1)]),
        b"stco": listed(0, ">I", [(at,) for at, _ in packets]),
    }

    path.write_bytes(replace_boxes(data, tables))

    assert check_file(path).faults == ()
    assert extract_local(path, sampling=Sampling(num_frames=4)).method == "index"
