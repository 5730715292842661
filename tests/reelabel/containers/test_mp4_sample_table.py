"""The tables of an MP4, as muxers write them and as they must not be."""

import io
import struct

import numpy as np
import pytest

from reelabel.containers.mp4 import MP4
from reelabel.containers.mp4_sample_table import Box, plays_in_parts, read_box, read_track, walk_boxes
from reelabel.sources.sparse_file import ByteRange

LARGE_SIZE, TO_THE_END = 1, 0
PAUSE, NORMAL = -1, 1 << 16
# Three samples: durations 10, 10 and 20, of which the first is shown 5 later; the first and the last are keyframes.
TABLES = {
    "stsd": [(0,)],
    "stts": [(2, 10), (1, 20)],
    "ctts": [(1, 5), (2, 0)],
    "stss": [(1,), (3,)],
    "stsz": struct.pack(">4xII3I", 0, 3, 7, 8, 9),
}


def box(kind, body, *, size=None):
    if size == LARGE_SIZE:
        return struct.pack(">I4sQ", 1, kind, 16 + len(body)) + body
    return struct.pack(">I4s", 8 + len(body) if size is None else size, kind) + body


def table(rows, form, *, version=0):
    if isinstance(rows, bytes):
        return rows
    return struct.pack(">II", version << 24, len(rows)) + b"".join(struct.pack(form, *row) for row in rows)


FORMS = {"stsd": ">I", "stts": ">II", "ctts": ">Ii", "stss": ">I", "stps": ">I"}


def movie(*, edits=None, id_version=0, edit_version=0, groups=(), **changes):
    """Return the payload of a movie box with a track of sound, number 1, and one of pictures, number 2."""
    tables = {name: rows for name, rows in (TABLES | changes).items() if rows is not None}
    boxes = [box(name.encode(), table(rows, FORMS.get(name))) for name, rows in tables.items()]
    boxes += [box(b"sbgp", group) for group in groups]
    stbl = box(b"stbl", b"".join(boxes))
    head = box(b"tkhd", struct.pack(">B3x8xI" if id_version == 0 else ">B3x16xI", id_version, 2) + bytes(60))
    form = ">Iii" if edit_version == 0 else ">Qqi"
    edts = b"" if edits is None else box(b"edts", box(b"elst", table(edits, form, version=edit_version)))
    sound = box(b"trak", box(b"tkhd", struct.pack(">12xI", 1)))
    return memoryview(sound + box(b"trak", head + edts + box(b"mdia", box(b"minf", stbl))))


def read(**changes):
    return read_track(movie(**changes), track_id=2, samples=3)


def group(kind, runs, *, version=0):
    return table(runs, ">II", version=version)[:4] + kind + bytes(4 * version) + table(runs, ">II")[4:]


@pytest.mark.parametrize(
    ("changes", "times"),
    [
        pytest.param({}, [5, 10, 20], id="shown later"),
        pytest.param({"ctts": None}, [0, 10, 20], id="in the order of decoding"),
        pytest.param({"ctts": [(1, 0), (2, -3)]}, [0, 7, 17], id="shown earlier"),
        pytest.param({"id_version": 1}, [5, 10, 20], id="large times in the track's header"),
    ],
)
def test_samples_are_shown_at_the_sums_of_durations_and_their_offsets(changes, times):
    assert read(**changes).times.tolist() == times


@pytest.mark.parametrize(
    ("changes", "keyframes"),
    [
        pytest.param({}, [0, 2], id="listed"),
        pytest.param({"stss": None}, [0, 1, 2], id="not listed: all"),
        pytest.param({"stss": [(1,)], "stps": [(2,)]}, [0, 1], id="partial ones"),
        pytest.param({"stss": [(1,)], "groups": [group(b"rap ", [(2, 0), (1, 1)])]}, [0, 2], id="random access"),
        pytest.param({"groups": [group(b"rap ", [(1, 0), (1, 3)], version=1)]}, [0, 1, 2], id="of a newer table"),
        pytest.param({"groups": [group(b"roll", [(9, 1)])]}, [0, 2], id="another group"),
    ],
)
def test_keyframes_are_those_of_all_lists(changes, keyframes):
    assert read(**changes).keyframes.tolist() == keyframes


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"stts": None}, id="no durations"),
        pytest.param({"stts": [(2, 10)]}, id="too few durations"),
        pytest.param({"stts": struct.pack(">II", 0, 2) + bytes(15)}, id="durations cut short"),
        pytest.param({"ctts": [(4, 0)]}, id="too many offsets"),
        pytest.param({"stsd": [(0,), (0,)]}, id="two descriptions"),
        pytest.param({"stsd": None}, id="no description"),
        pytest.param({"stss": []}, id="no keyframe"),
        pytest.param({"stss": [(0,), (1,)]}, id="a keyframe before the first sample"),
        pytest.param({"stss": [(1,), (4,)]}, id="a keyframe after the last one"),
        pytest.param({"stss": [(2,), (2,)]}, id="a keyframe twice"),
        pytest.param({"stps": [(0,)]}, id="a partial one before the first sample"),
        pytest.param({"stps": [(4,)]}, id="a partial one after the last"),
        pytest.param({"groups": [group(b"rap ", [(4, 1)])]}, id="a group of too many samples"),
        pytest.param({"groups": [group(b"sync", [(3, 1)])]}, id="keyframes known by their pictures"),
    ],
)
def test_tables_that_contradict_each_other_are_not_used(changes):
    assert read(**changes) is None


def test_a_track_that_the_movie_lacks_has_no_tables():
    assert read_track(movie(), track_id=3, samples=3) is None
    assert read_track(movie(), track_id=1, samples=3) is None
    assert not plays_in_parts(movie(edits=[(9, 0, NORMAL)] * 2), track_id=1)


@pytest.mark.parametrize(
    ("edits", "is_whole", "in_parts"),
    [
        pytest.param(None, True, False, id="no list"),
        pytest.param([(9, 4, NORMAL)], True, False, id="one part"),
        pytest.param([(5, PAUSE, NORMAL), (9, 4, NORMAL)], True, False, id="after a pause"),
        pytest.param([(9, 4, 2 * NORMAL)], False, False, id="faster"),
        pytest.param([(9, 4, NORMAL), (9, 20, NORMAL)], False, True, id="two parts"),
        pytest.param([(9, 4, NORMAL), (5, PAUSE, NORMAL)], False, False, id="a pause in the end"),
        pytest.param([], False, False, id="empty"),
        pytest.param(b"", False, False, id="cut short"),
    ],
)
@pytest.mark.parametrize("edit_version", [0, 1])
def test_an_edit_list_plays_a_track_once_or_in_parts(edits, is_whole, in_parts, edit_version):
    data = movie(edits=edits, edit_version=edit_version)

    assert read_track(data, track_id=2, samples=3).is_whole == is_whole
    assert plays_in_parts(data, track_id=2) == in_parts


@pytest.mark.parametrize(
    ("stsz", "has_empty"),
    [
        pytest.param(TABLES["stsz"], False, id="each has bytes"),
        pytest.param(struct.pack(">4xII3I", 0, 3, 7, 0, 9), True, id="one has none"),
        pytest.param(struct.pack(">4xII", 7, 3), False, id="one size for all"),
        pytest.param(struct.pack(">4xII2I", 0, 2, 7, 8), True, id="too few"),
        pytest.param(struct.pack(">4xII2I", 0, 3, 7, 8), True, id="cut short"),
        pytest.param(struct.pack(">4xI", 0), True, id="cut in its head"),
        pytest.param(None, True, id="unknown"),
    ],
)
def test_samples_may_be_empty_unless_every_size_is_known(stsz, has_empty):
    assert read(stsz=stsz).has_empty == has_empty


FILE = box(b"ftyp", b"isom") + box(b"mdat", b"12345", size=LARGE_SIZE) + box(b"moov", b"head")
KINDS = [b"ftyp", b"mdat", b"moov"]


@pytest.mark.parametrize(
    ("data", "kinds"),
    [
        pytest.param(FILE, KINDS, id="whole"),
        pytest.param(FILE + b"\0" * 7, KINDS, id="bytes that are no box"),
        pytest.param(FILE + box(b"free", b"", size=7) + FILE, KINDS, id="up to a box of no size"),
        pytest.param(FILE + box(b"mdat", b"rest", size=TO_THE_END), [*KINDS, b"mdat"], id="to the end"),
        pytest.param(FILE + box(b"free", b"", size=8), [*KINDS, b"free"], id="an empty box"),
    ],
)
def test_boxes_follow_each_other_up_to_the_first_that_is_none(data, kinds):
    found = [*walk_boxes(io.BytesIO(data), len(data))]

    assert [each.kind for each in found] == kinds
    assert [each.span.start for each in found] == np.cumsum([0, *(each.span.size for each in found[:-1])]).tolist()
    assert [bytes(read_box(io.BytesIO(data), each)) for each in found[:3]] == [b"isom", b"12345", b"head"]
    assert found[-1].span.end <= len(data)


def test_a_file_that_is_cut_lacks_the_rest_of_its_last_box():
    data = FILE + box(b"mdat", bytes(100))

    assert [MP4.missing_bytes(io.BytesIO(data[:size]), size) for size in (len(data), len(data) - 60)] == [0, 60]
    assert MP4.missing_bytes(io.BytesIO(data[12:-60]), len(data) - 72) == 0  # not known to begin as an MP4
    assert [*walk_boxes(io.BytesIO(data[:-60]), len(data) - 60)][-1] == Box(b"mdat", ByteRange(len(FILE), 108))
