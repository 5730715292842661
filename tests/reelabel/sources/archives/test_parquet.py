"""Videos in a column of a Parquet file, whatever the file claims."""

import io
import random

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from reelabel.errors import (
    ArchiveUnreadableError,
    MemberMissingError,
    ReelabelError,
    VideoEmptyError,
    VideoRefusedError,
)
from reelabel.sources import parquet as parquet_rows
from reelabel.sources.object_info import MemberUri
from reelabel.sources.parquet import ParquetRows
from tests.reelabel.sources.archives.held_archive import HeldArchive

VIDEOS = [random.Random(number).randbytes(40_000 + number) for number in range(20)]
STRUCTS = [{"bytes": video, "path": f"{number}.mp4"} for number, video in enumerate(VIDEOS)]


def pack(columns, **options):
    sink = io.BytesIO()
    parquet.write_table(pa.table(columns), sink, **{"row_group_size": 7} | options)
    return sink.getvalue()


def archive_of(columns, **options):
    return HeldArchive(pack(columns, **options), name="s3://b/p.parquet")


def content(archive, fragment, rows=None):
    return (rows or ParquetRows(None)).open(archive, MemberUri("s3://b/p.parquet", fragment))


def copied(archive, fragment):
    return b"".join(content(archive, fragment).copy())


@pytest.mark.parametrize("fragment", ["column=mp4&row={}", "row={}&column=video", "column=video.bytes&row={}"])
@pytest.mark.parametrize(
    "options", [{}, {"compression": "none"}, {"use_dictionary": False, "data_page_version": "2.0"}]
)
def test_a_row_is_the_video_that_was_written(fragment, options):
    archive = archive_of({"mp4": VIDEOS, "video": STRUCTS}, **options)

    for row in (0, 6, 7, 17, 19):
        found = content(archive, fragment.format(row))
        assert found.size == len(VIDEOS[row])
        assert found.read(5, 10) == VIDEOS[row][5:15]
        assert b"".join(found.copy()) == VIDEOS[row]


def test_a_large_binary_column_is_read():
    assert copied(archive_of({"mp4": pa.array(VIDEOS, pa.large_binary())}), "column=mp4&row=9") == VIDEOS[9]


def test_one_row_group_of_one_column_is_read_once_for_all_of_its_rows():
    archive, rows = archive_of({"mp4": VIDEOS, "other": VIDEOS[::-1]}, use_dictionary=False), ParquetRows(None)

    for row in range(7, 14):
        assert b"".join(content(archive, f"column=mp4&row={row}", rows).copy()) == VIDEOS[row]

    assert archive.bytes_read < 2.5 * sum(map(len, VIDEOS[7:14]))


def test_sizes_are_found_again_without_the_videos():
    class Shelf(dict):
        def find_archive_index(self, **key):
            data = self.get(tuple(key.values()))
            return data and memoryview(data)

        def write_archive_index(self, data, **key):
            self[tuple(key.values())] = data

    archive, shelf = archive_of({"mp4": VIDEOS}), Shelf()
    content(archive, "column=mp4&row=8", ParquetRows(shelf))
    archive.reads.clear()

    assert content(archive, "column=mp4&row=9", ParquetRows(shelf)).size == len(VIDEOS[9])
    assert archive.bytes_read <= 256 * 1024  # the footer


@pytest.mark.parametrize("saved", [np.array([-2] * 7, "<i8").tobytes(), b"odd"], ids=["negative", "no sizes"])
def test_saved_sizes_that_cannot_be_are_read_anew(saved):
    class Shelf:
        data = saved

        def find_archive_index(self, **_):
            return memoryview(self.data)

        def write_archive_index(self, data, **_):
            self.data = data

    shelf = Shelf()

    assert content(archive_of({"mp4": VIDEOS}), "column=mp4&row=1", ParquetRows(shelf)).size == len(VIDEOS[1])
    assert shelf.data != saved
    shelf.data = np.array([5, 5], "<i8").tobytes()
    with pytest.raises(ArchiveUnreadableError, match="row group 0 has 2 of 7 rows"):
        content(archive_of({"mp4": VIDEOS}), "column=mp4&row=1", ParquetRows(shelf))


def test_values_are_read_in_pieces_beside_empty_and_missing_ones(monkeypatch):
    monkeypatch.setattr(parquet_rows, "_BATCH_BYTES", 1000)
    values = [VIDEOS[0], None, b"", VIDEOS[3], None, VIDEOS[5]]
    archive, rows = archive_of({"mp4": values}), ParquetRows(None)

    for row in (0, 3, 5):
        pieces = list(content(archive, f"column=mp4&row={row}", rows).copy())
        assert b"".join(pieces) == values[row]
        assert max(map(len, pieces)) == 1000
    assert content(archive, "column=mp4&row=2", rows).size == 0


def test_a_row_group_that_holds_more_than_it_states_is_refused(monkeypatch):
    monkeypatch.setattr(parquet_rows, "MAX_GROUP_BYTES", 200_000)

    with pytest.raises(ArchiveUnreadableError, match="row group 0 has more bytes than it states"):
        content(archive_of({"mp4": [VIDEOS[0]] * 7}), "column=mp4&row=1")  # stored once, by its number


def test_a_large_row_group_is_reported(monkeypatch):
    archive = archive_of({"mp4": VIDEOS})
    assert content(archive, "column=mp4&row=1").note == ""
    monkeypatch.setattr(parquet_rows, "LARGE_GROUP_BYTES", 200_000)

    assert content(archive, "column=mp4&row=1").note.startswith("row group 0 was read for it, with 280,")


def test_a_row_group_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(parquet_rows, "MAX_GROUP_BYTES", 200_000)

    with pytest.raises(
        ArchiveUnreadableError, match=r"row group 0 has 280,\d+ bytes in column mp4.*smaller row groups"
    ):
        content(archive_of({"mp4": VIDEOS}), "column=mp4&row=1")


@pytest.mark.parametrize(
    ("fragment", "error", "message"),
    [
        ("7", VideoRefusedError, "does not name a column and a row; write FILE.parquet#column=NAME&row=NUMBER"),
        ("column=mp4", VideoRefusedError, "does not name a column and a row"),
        ("column=mp4&row=1&x=2", VideoRefusedError, "does not name a column and a row"),
        ("column=mp4&row=-1", VideoRefusedError, "does not name a row by its number, from 0"),
        ("column=mp4&row=1e3", VideoRefusedError, "does not name a row by its number"),
        (f"column=mp4&row={10**18}", VideoRefusedError, "does not name a row by its number"),
        (f"column=mp4&row={10**18 - 1}", MemberMissingError, "There is no row 999999999999999999"),
        ("column=mp4&row=20", MemberMissingError, "There is no row 20 in s3://b/p.parquet, which has 20, from 0"),
        ("column=nix&row=1", MemberMissingError, "has no column nix; its columns of bytes: mp4, video.bytes"),
        ("column=text&row=1", MemberMissingError, "has a column text, but not of bytes"),
        ("column=list&row=1", MemberMissingError, "has no column list"),
        ("column=mp4&row=3", VideoEmptyError, "Row 3 of column mp4 in s3://b/p.parquet is null"),
        ("column=video&row=3", VideoEmptyError, "Row 3 of column video"),
    ],
)
def test_what_names_no_video_is_explained(fragment, error, message):
    holes = [None if row == 3 else video for row, video in enumerate(VIDEOS)]
    columns = {
        "mp4": holes,
        "text": ["a"] * 20,
        "list": [[b"a"]] * 20,
        "video": [None if row == 3 else struct for row, struct in enumerate(STRUCTS)],
    }

    with pytest.raises(error, match=message):
        content(archive_of(columns), fragment)


def test_noise_is_damage():
    rng = random.Random(23)
    data = pack({"mp4": [video[:300] for video in VIDEOS]})
    refused = 0
    for _ in range(60):
        noisy = bytearray(data)
        for _ in range(3):
            noisy[rng.randrange(len(noisy) - 200, len(noisy))] = rng.randrange(256)
        try:
            copied(HeldArchive(bytes(noisy), name="s3://b/p.parquet"), "column=mp4&row=12")
        except ReelabelError:  # and nothing else
            refused += 1
    assert refused > 20


def test_a_file_that_is_not_parquet_is_named():
    with pytest.raises(ArchiveUnreadableError, match="damaged, or not a Parquet file"):
        content(HeldArchive(b"PAR1" + bytes(100), name="s3://b/p.parquet"), "column=mp4&row=0")
