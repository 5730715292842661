"""The members of a tar, whatever its headers claim."""

import bz2
import gzip
import io
import lzma
import math
import random
import tarfile
import threading
import time

import pytest

from reelabel.errors import ArchiveUnreadableError, MemberMissingError
from reelabel.sources import tar
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
def test_a_member_that_is_not_a_regular_file_is_refused_and_the_rest_is_found(header, reason):
    form = tarfile.PAX_FORMAT if "pax_headers" in header else tarfile.GNU_FORMAT
    odd = pack([("odd", b"")], form=form, **header).rstrip(b"\0")
    odd += bytes(-len(odd) % BLOCK)
    index = read_tar(HeldArchive(odd + pack([("after", b"well")])))

    with pytest.raises(ArchiveUnreadableError, match=f"The member odd of a.tar {reason}"):
        index.find("odd", "a.tar")
    assert index.find("after", "a.tar").size == 4


def summed(header):
    """Make the checksum of a header right."""
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


@pytest.mark.parametrize("extensions", [0, 1, 3])
def test_what_follows_a_file_with_holes_is_found(extensions):
    sparse = bytearray(with_header(pack([("odd", b"")]), 0, type=tarfile.GNUTYPE_SPARSE, size=600)[:BLOCK])
    sparse[482] = extensions > 0
    blocks = bytearray(extensions * BLOCK)
    for number in range(extensions - 1):
        blocks[number * BLOCK + 504] = 1

    data = summed(sparse) + blocks + b"x" * 600 + bytes(-600 % BLOCK) + pack([("after", b"well")])

    index = read_tar(HeldArchive(data))
    assert index.damage == ""
    assert index.find("after", "a.tar").size == 4


@pytest.mark.parametrize(
    ("kind", "data"),
    [(tarfile.LNKTYPE, b""), (tarfile.DIRTYPE, b""), (b"Z", b"z" * 600), (tarfile.CONTTYPE, b"z" * 600)],
)
def test_data_follow_a_file_of_an_unknown_kind_and_no_link_or_folder(kind, data):
    header = with_header(pack([("odd", b"")]), 0, type=kind, linkname="x", size=600)[:BLOCK]
    index = read_tar(HeldArchive(header + data + bytes(-len(data) % BLOCK) + pack([("after", b"well")])))

    assert (index.find("after", "a.tar").size, index.damage) == (4, "")


def extended(records, member, *, kind=tarfile.XHDTYPE):
    """Return a member behind an extended header."""
    blocks = -(-len(records) // BLOCK)
    return with_header(pack([("x", records)]), 0, type=kind)[: (1 + blocks) * BLOCK] + member


def test_an_extended_header_gives_a_size_and_a_name_and_a_global_one_does_not():
    member = with_header(pack([("a", b"hello")]), 0, size=0)[: 2 * BLOCK]
    last = pack([("last", b"last")])

    assert found(extended(b"10 size=5\n12 path=b/c\n", member) + last) == {"b/c": b"hello", "last": b"last"}
    assert found(extended(b"12 path=b/c\n", pack([("a", b"hello")]), kind=tarfile.XGLTYPE)) == {"a": b"hello"}


@pytest.mark.parametrize(
    ("digits", "message"),
    [(18, "cut short by the end of the archive"), (19, f"the member at byte 1,024 states a size of '{'9' * 19}'")],
)
def test_a_size_has_eighteen_digits_at_most(digits, message):
    record = f"{digits + 9} size={'9' * digits}\n".encode()
    index = read_tar(HeldArchive(extended(record, pack([("a", b"")]))))

    with pytest.raises(ArchiveUnreadableError, match=message):
        index.find("a", "a.tar")


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


@pytest.mark.parametrize(("count", "damage"), [(2, ""), (3, "it has more than 2 members; divide it")])
def test_of_an_archive_of_too_many_members_the_first_ones_are_found(monkeypatch, count, damage):
    monkeypatch.setattr(tar, "MAX_MEMBERS", 2)

    index = read_tar(HeldArchive(pack([(str(number), b"") for number in range(count)])))

    assert (index.damage, [*index.members]) == (damage, ["0", "1"])


def test_headers_without_end_are_left_alone():
    header = with_header(pack([("a", b"")]), 0, type=tarfile.GNUTYPE_LONGNAME, size=0)[:BLOCK]

    assert "a chain of headers without a member" in read_tar(HeldArchive(header * 5000)).damage


def test_an_extended_header_of_many_records_is_read_in_the_time_that_its_bytes_take():
    archive = extended(b"6 a=b\n" * ((1024**2 - 10) // 6) + b"10 path=b\n", pack([("a", b"hello")]))
    began_s = time.thread_time()

    assert found(archive) == {"b": b"hello"}
    assert time.thread_time() - began_s < 1.5


@pytest.mark.parametrize(
    "records", [b"garbage", b"99 path=x\n", b"0 a=b\n", b"5 path", b"11 size=-9\n", b"14 size=9999x\n"]
)
def test_a_malformed_extended_header_is_damage(records):
    sink = with_header(pack([("x", records)]), 0, type=tarfile.XHDTYPE)[: 2 * BLOCK]

    assert read_tar(HeldArchive(sink + pack([("a", b"")]))).damage


@pytest.mark.parametrize(
    ("pack_again", "name"),
    [
        (gzip.compress, "gzip"),
        (bz2.compress, "bzip2"),
        (lzma.compress, "xz"),
        (lambda data: b"\x28\xb5\x2f\xfd" + data, "zstd"),
    ],
)
def test_a_tar_that_is_compressed_as_a_whole_is_called_so(pack_again, name):
    data = pack_again(pack([("a", b"a")]))

    assert f"compressed as a whole, with {name}" in read_tar(HeldArchive(data)).damage
    later = read_tar(HeldArchive(pack([("a", b"a")])[: 2 * BLOCK] + data + bytes(BLOCK)))
    assert "there is no header of a tar at byte 1,024" in later.damage


@pytest.mark.parametrize("data", [b"", b"x" * 3000, bytes(5)])
def test_a_file_that_is_not_tar_has_no_members_and_says_so(data):
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
