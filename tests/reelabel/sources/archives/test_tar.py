"""The members of a tar, whatever its headers claim."""

import io
import math
import random
import tarfile
import threading

import pytest

from reelabel.errors import ArchiveUnreadableError, MemberMissingError
from reelabel.sources.tar import read_tar
from tests.reelabel.sources.archives.held_archive import HeldArchive

BLOCK = 512


class ReadByEight(HeldArchive):
    """An archive whose first reads by other threads are not answered before eight have asked."""

    def __init__(self, data):
        super().__init__(data)
        self._eight, self._thread = threading.Barrier(8), threading.local()
        self._thread.has_asked = True

    def read(self, start, size):
        if not hasattr(self._thread, "has_asked"):
            self._thread.has_asked = True
            self._eight.wait(timeout=30)
        return super().read(start, size)


def pack(members, *, form=tarfile.GNU_FORMAT, **header):
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=form) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in header.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(data))
    return sink.getvalue()


def found(data, **options):
    index = read_tar(HeldArchive(data, **options))
    return {name: data[each.start : each.start + each.size] for name, each in index.members.items()}


def with_header(data, at, **fields):
    """Change a header, and make its checksum right."""
    info = tarfile.TarInfo.frombuf(data[at : at + BLOCK], "utf-8", "surrogateescape")
    for name, value in fields.items():
        setattr(info, name, value)
    return data[:at] + info.tobuf(tarfile.GNU_FORMAT) + data[at + BLOCK :]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("max_wait_s", [60.0, math.inf])
def test_every_member_is_found_as_tarfile_finds_it(form, max_wait_s):
    rng = random.Random(form)
    members = [(f"clips/{number}.mp4", rng.randbytes(rng.randrange(20_000))) for number in range(400)]
    if form != tarfile.USTAR_FORMAT:
        members += [("long/" * 60 + "é.mp4", b"far"), ("caf\udce9.mp4", b"latin")]

    assert found(pack(members, form=form), max_wait_s=max_wait_s) == dict(members)


def test_a_large_remote_archive_costs_a_small_read_a_member_and_eight_at_once():
    members = [(f"{number:04}.mp4", bytes(100_000)) for number in range(200)]
    archive = ReadByEight(pack(members))

    index = read_tar(archive)

    assert len(index.members) == 200
    assert len(archive.reads) <= 2 * 200
    assert archive.bytes_read < 0.15 * len(archive.data)


def test_an_archive_inside_a_member_is_not_taken_for_members():
    inner = pack([(f"inner/{number}", bytes(3000)) for number in range(3000)])
    members = [*((f"{number}.mp4", bytes(5000)) for number in range(40)), ("inner.tar", inner), ("last.mp4", b"last")]

    assert found(pack(members)) == dict(members)


def test_a_leading_dot_is_no_part_of_a_name():
    index = read_tar(HeldArchive(pack([("./clips/7.mp4", b"seven")])))

    assert index.find("clips/7.mp4", "a.tar") == index.find("./clips/7.mp4", "a.tar")


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, "is a link to /etc/passwd"),
        ({"type": tarfile.LNKTYPE, "linkname": "b"}, "is a link to b"),
        ({"type": tarfile.DIRTYPE}, "is a folder"),
        ({"type": tarfile.CHRTYPE}, "is not a regular file"),
        ({"type": tarfile.GNUTYPE_SPARSE}, "is stored with its holes left out"),
        ({"pax_headers": {"GNU.sparse.major": "1"}}, "is stored with its holes left out"),
    ],
)
def test_what_is_no_plain_file_is_refused_and_the_rest_is_found(header, reason):
    form = tarfile.PAX_FORMAT if "pax_headers" in header else tarfile.GNU_FORMAT
    odd = pack([("odd", b"")], form=form, **header).rstrip(b"\0")
    odd += bytes(-len(odd) % BLOCK)
    index = read_tar(HeldArchive(odd + pack([("after", b"well")])))

    with pytest.raises(ArchiveUnreadableError, match=f"The member odd of a.tar {reason}"):
        index.find("odd", "a.tar")
    assert index.find("after", "a.tar").size == 4


def test_a_name_that_two_members_have_is_refused():
    index = read_tar(HeldArchive(pack([("a", b"1"), ("b", b"2"), ("./a", b"3")])))

    with pytest.raises(ArchiveUnreadableError, match=r"The member a of a\.tar occurs more than once"):
        index.find("a", "a.tar")
    assert index.find("b", "a.tar").size == 1


@pytest.mark.parametrize("keep", [0.3, 0.5, 0.9])
def test_of_an_archive_that_is_cut_short_the_whole_members_are_found(keep):
    data = pack([("a", bytes(10_000)), ("b", bytes(10_000)), ("c", bytes(10_000))])[: int(keep * 32_000)]
    index = read_tar(HeldArchive(data))

    whole = [name for name in "abc" if name in index.members and not index.members[name].refusal]
    assert whole == ["a", "b", "c"][: int(keep * 32_000) // 10_752]
    with pytest.raises(ArchiveUnreadableError, match="cut short"):
        index.find("abc"[len(whole)], "a.tar")
    with pytest.raises(ArchiveUnreadableError, match=r"a\.tar is damaged, so that d is not found in it"):
        index.find("d", "a.tar")


@pytest.mark.parametrize("size", [8**11, 2**62, -512, -1, -(2**40)])
def test_a_wild_size_neither_loops_nor_reaches_outside(size):
    data = pack([("a", b"a" * 600), ("b", b"b" * 600)])
    index = read_tar(HeldArchive(with_header(data, 0, size=size)))

    with pytest.raises(ArchiveUnreadableError):
        index.find("a", "a.tar")


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
@pytest.mark.parametrize("size", [2**40, -(2**40), 2_000_000])
def test_a_header_that_states_gigabytes_is_not_read(kind, size):
    archive = HeldArchive(with_header(pack([("a", b"")]), 0, type=kind, size=size))

    assert f"states {size:,} bytes" in read_tar(archive).damage
    assert archive.bytes_read <= len(archive.data)


def test_headers_without_end_are_left_alone():
    header = with_header(pack([("a", b"")]), 0, type=tarfile.GNUTYPE_LONGNAME, size=0)[:BLOCK]

    assert "a chain of headers without a member" in read_tar(HeldArchive(header * 5000)).damage


@pytest.mark.parametrize(
    "records", [b"garbage", b"99 path=x\n", b"0 a=b\n", b"5 path", b"11 size=-9\n", b"14 size=9999x\n"]
)
def test_a_malformed_extended_header_is_damage(records):
    sink = with_header(pack([("x", records)]), 0, type=tarfile.XHDTYPE)[: 2 * BLOCK]

    assert read_tar(HeldArchive(sink + pack([("a", b"")]))).damage


def test_a_tar_that_is_compressed_as_a_whole_is_called_so():
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("a"))

    assert "compressed as a whole, with gzip" in read_tar(HeldArchive(sink.getvalue())).damage


@pytest.mark.parametrize("data", [b"", b"x" * 3000, bytes(5)])
def test_what_is_no_tar_has_no_members_and_says_so(data):
    with pytest.raises((ArchiveUnreadableError, MemberMissingError)):
        read_tar(HeldArchive(data)).find("a", "a.tar")


def test_noise_in_headers_never_leads_outside_or_astray():
    rng = random.Random(23)
    data = pack([(f"{number}", bytes(rng.randrange(3000))) for number in range(50)], form=tarfile.PAX_FORMAT)
    for _ in range(300):
        noisy = bytearray(data)
        for _ in range(rng.randrange(1, 20)):
            noisy[rng.randrange(len(noisy))] = rng.randrange(256)
        cut = bytes(noisy[: rng.randrange(len(noisy))])
        for member in read_tar(HeldArchive(cut)).members.values():
            assert member.refusal or 0 <= member.start <= member.start + member.size <= len(cut)
