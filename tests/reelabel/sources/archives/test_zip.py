"""The members of a zip, whatever its directory claims."""

import io
import random
import struct
import zipfile
import zlib

import pytest

from reelabel.errors import ArchiveUnreadableError, ObjectTooLargeError, ReelabelError
from reelabel.sources import zip as zip_members
from reelabel.sources.object_store import ObjectStore
from reelabel.sources.zip import open_zip_member, read_zip
from tests.reelabel.sources.archives.held_archive import HeldArchive

STORED = random.Random(1).randbytes(50_000)
REPEATED = b"again and again " * 100_000


def pack(*members, method=zipfile.ZIP_STORED):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, data in members:
            archive.writestr(name, data, method)
    return sink.getvalue()


def content(data, name):
    archive = HeldArchive(data, name="a.zip")
    return open_zip_member(archive, read_zip(archive).find(name, "a.zip"))


def copied(data, name):
    return b"".join(content(data, name).copy())


def changed(data, at, form, value):
    return data[:at] + struct.pack(form, value) + data[at + struct.calcsize(form) :]


def directory(data, number=0):
    """Return where an entry of the central directory begins."""
    at = -1
    for _ in range(number + 1):
        at = data.index(b"PK\x01\x02", at + 1)
    return at


def test_a_stored_member_is_read_by_range():
    data = pack(("a.mp4", STORED), ("b.mp4", b"b" * 100))

    assert content(data, "a.mp4").read(10_000, 20) == STORED[10_000:10_020]
    assert copied(data, "b.mp4") == b"b" * 100


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("size", [0, 1, 100, 1_600_000])
def test_a_member_is_copied_out_whole(method, size):
    assert copied(pack(("a", REPEATED[:size]), method=method), "a") == REPEATED[:size]


def test_the_directory_of_a_thousand_members_is_one_read():
    data = pack(*((f"clips/{number}.mp4", bytes(2000)) for number in range(1000)))
    archive = HeldArchive(data)

    assert len(read_zip(archive).members) == 1000
    assert len(archive.reads) <= 2
    assert archive.bytes_read < 300_000


def test_a_zip_with_64_bit_offsets_and_one_that_was_streamed_are_read():
    sink = io.BytesIO()

    class Pipe(io.RawIOBase):
        def writable(self):
            return True

        def write(self, data):
            return sink.write(data)

    with zipfile.ZipFile(Pipe(), "w") as archive, archive.open("a", "w", force_zip64=True) as member:
        member.write(STORED)

    assert content(sink.getvalue(), "a").read(5, 10) == STORED[5:15]
    assert copied(sink.getvalue(), "a") == STORED


@pytest.mark.parametrize("name", ["é.mp4", f"{'x' * 600}.mp4", "folder/é" * 80])
def test_a_member_of_any_name_is_read(name):
    data = pack((name, STORED), ("other", b"o"))

    assert content(data, name).read(5, 10) == STORED[5:15]
    assert copied(data, "other") == b"o"


def test_a_name_that_is_not_in_unicode_is_of_the_first_code_page():
    data = pack(("caf?.mp4", STORED)).replace(b"caf?.mp4", b"caf\x82.mp4")

    assert copied(data, "café.mp4") == STORED


def test_a_folder_in_a_zip_is_no_video():
    with pytest.raises(ArchiveUnreadableError, match=r"The member clips/ of a\.zip is a folder; name a video in it"):
        content(pack(("clips/", b""), ("clips/a", b"a")), "clips/")


def test_an_archive_behind_other_bytes_is_read():
    assert copied(b"#!/bin/sh\n" * 50 + pack(("a", STORED)), "a") == STORED


def test_a_bomb_is_stopped_at_the_size_that_it_states(tmp_path):
    bomb = pack(("a", bytes(20_000_000)), method=zipfile.ZIP_DEFLATED)
    at = directory(bomb)
    lying = changed(changed(bomb, at + 24, "<I", 1000), 22, "<I", 1000)
    sink = io.BytesIO()

    with pytest.raises(ArchiveUnreadableError, match="unpacks to more than the 1,000 bytes that it states"):
        sink.writelines(content(lying, "a").copy())
    assert sink.tell() <= 1000
    (tmp_path / "a.zip").write_bytes(bomb)
    with pytest.raises(ObjectTooLargeError, match="exceeds the limit of 1,000,000 bytes"):
        ObjectStore().download(f"{tmp_path}/a.zip#a", tmp_path / "copy", max_bytes=1_000_000)
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize(
    ("at", "form", "value", "reason"),
    [
        (8, "<H", zipfile.ZIP_DEFLATED, "is described otherwise by its own header"),
        (14, "<I", 1, "is described otherwise by its own header"),
        (18, "<I", 7, "is described otherwise by its own header"),
        (6, "<H", 1, "is described otherwise by its own header"),
        (30, "<c", b"z", "is called z.mp4 by its own header"),
        (26, "<H", 60_000, "is called"),
        (28, "<H", 60_000, "ends after the end"),
        (0, "<I", 1, "has no header where the central directory says"),
    ],
)
def test_a_member_whose_header_contradicts_the_directory_is_refused(at, form, value, reason):
    data = changed(pack(("a.mp4", STORED)), at, form, value)

    with pytest.raises(ArchiveUnreadableError, match=f"The member a.mp4 of a.zip {reason}"):
        content(data, "a.mp4").read(0, 1)


@pytest.mark.parametrize(
    ("offset", "form", "value", "reason"),
    [
        (8, "<H", 1, "is encrypted"),
        (10, "<H", zipfile.ZIP_LZMA, "is compressed with lzma"),
        (10, "<H", 77, "is compressed with method 77"),
        (20, "<I", 49_999, "in another number of bytes"),
        (20, "<I", 2**31, "overlaps|cut short|another number"),
        (42, "<I", 2**31, "cut short"),
    ],
)
def test_a_directory_entry_that_cannot_be_read_is_refused(offset, form, value, reason):
    data = pack(("a", STORED))

    with pytest.raises(ArchiveUnreadableError, match=reason):
        content(changed(data, directory(data) + offset, form, value), "a")


def test_a_member_that_overlaps_the_next_is_refused():
    data = pack(("a", b"a" * 5000), ("b", b"b" * 5000))
    at = directory(data)
    data = changed(changed(data, at + 20, "<I", 9000), at + 24, "<I", 9000)

    with pytest.raises(ArchiveUnreadableError, match="overlaps the next member"):
        content(data, "a")
    assert copied(data, "b") == b"b" * 5000


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_two_members_have_is_refused():
    with pytest.raises(ArchiveUnreadableError, match="occurs more than once"):
        content(pack(("a", b"1"), ("a", b"2")), "a")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_damaged_bytes_are_not_copied_out(method):
    data = bytearray(pack(("a", STORED), method=method))
    data[20_000] ^= 1

    with pytest.raises(ArchiveUnreadableError, match=r"The member a of a\.zip is damaged"):
        copied(bytes(data), "a")


@pytest.mark.parametrize(("count", "damage"), [(2, ""), (3, "it has more than 2 members; divide it")])
def test_an_archive_of_too_many_members_is_not_read(monkeypatch, count, damage):
    monkeypatch.setattr(zip_members, "MAX_MEMBERS", 2)

    index = read_zip(HeldArchive(pack(*((str(number), b"") for number in range(count)))))

    assert (index.damage, len(index.members)) == (damage, 0 if damage else 2)


def test_an_archive_that_is_cut_short_is_reported():
    with pytest.raises(ArchiveUnreadableError, match="its central directory cannot be read"):
        content(pack(("a", STORED))[:-100], "a")


def test_noise_never_leads_outside_or_to_other_bytes():
    rng = random.Random(23)
    data = pack(*((f"{number}", rng.randbytes(300)) for number in range(20)), method=zipfile.ZIP_DEFLATED)
    right = {f"{number}": zlib.crc32(copied(data, f"{number}")) for number in range(20)}
    for _ in range(80):
        noisy = bytearray(data)
        for _ in range(rng.randrange(1, 6)):
            noisy[rng.randrange(len(noisy))] = rng.randrange(256)
        for name, crc in right.items():
            try:
                assert zlib.crc32(copied(bytes(noisy), name)) == crc
            except ReelabelError:
                continue
