"""Headers of tar and zip that claim anything: damage of the archive or of a member, never another error.

As in a run, the index is encoded for the cache, and read back from there.
"""

import io
import random
import struct
import tarfile
import warnings
import zipfile
from dataclasses import dataclass, field

import pytest

from reelabel.errors import ArchiveUnreadableError, MemberMissingError
from reelabel.sources.archives import Archives
from tests.reelabel.sources.archives.held_archive import HeldArchive

BLOCK = 512
NAMES = [
    "",
    "\0",
    "\0.mp4",
    "a\0.mp4",
    "/",
    "./",
    "..",
    "a" * 70_000,
    "caf\udce9.mp4",
    "\u202e4pm",
    "a\n.mp4",
    *["a.mp4"] * 6,
]
SIZES = [0, 1, -1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 2**80]


@dataclass
class Store:
    """Saves indexes of archives in memory."""

    saved: dict = field(default_factory=dict)

    def find_archive_index(self, **key):
        found = self.saved.get(tuple(key.values()))
        return None if found is None else memoryview(found)

    def write_archive_index(self, data, **key):
        self.saved[tuple(key.values())] = data


def look(data, kind, member="a.mp4"):
    """Return the bytes of a member of an archive, or the message of its refusal: the same from a saved index."""
    store, outcomes = Store(), []
    for _ in range(2):
        archive = HeldArchive(data, name=f"s3://b/a.{kind}", max_wait_s=float("inf"))
        try:
            content = Archives(None, store).open(archive, f"{archive.name}#{member}")
            outcomes.append(b"".join(content.pieces()))
        except (ArchiveUnreadableError, MemberMissingError) as error:
            outcomes.append(error.message)
    assert store.saved
    assert outcomes[0] == outcomes[1]
    return outcomes[0]


def wild_tar():
    """Return a tar whose member has a size in base 256 of 80 ff ... ff."""
    header = bytearray(tarfile.TarInfo("a.mp4").tobuf(tarfile.USTAR_FORMAT))
    header[124:136] = b"\x80" + b"\xff" * 11
    return summed(header) + bytes(1024)


def summed(header):
    """Make the checksum of a header right."""
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:BLOCK])
    return bytes(header)


def zipped(*names):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name in names:
            archive.writestr(name, b"0123456789")
    return sink.getvalue()


def renamed(data, name):
    """Give the first entry of a zip's directory another name of the same length."""
    at = data.index(b"PK\x01\x02") + 46
    return data[:at] + name + data[at + len(name) :]


def test_a_size_of_more_than_64_bits_is_refused():
    assert look(wild_tar(), "tar").startswith("The member a.mp4 of s3://b/a.tar is cut short")


@pytest.mark.parametrize("name", [b"\0.mp4", b"\0\0\0\0\0"])
def test_a_zip_with_a_member_without_a_name_is_damaged_and_its_other_members_are_read(name):
    data = renamed(zipped("a.mp4", "b.mp4"), name)

    assert look(data, "zip").startswith("s3://b/a.zip is damaged, so that a.mp4 is not found in it")
    assert look(data, "zip", member="b.mp4") == b"0123456789"


def test_a_tar_with_a_member_without_a_name_is_damaged_and_its_other_members_are_read():
    blocks = [tarred("", b"1"), tarred("b.mp4", b"2"), bytes(2 * BLOCK)]

    assert look(b"".join(blocks), "tar").startswith("s3://b/a.tar is damaged, so that a.mp4 is not found in it")
    assert look(b"".join(blocks), "tar", member="b.mp4") == b"2"


def test_a_link_to_a_name_that_is_no_text_is_refused_in_words():
    info = tarfile.TarInfo("a.mp4")
    info.type, info.linkname = tarfile.SYMTYPE, "caf\udce9\x1b.mp4"

    message = look(info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape") + bytes(1024), "tar")

    assert message == "The member a.mp4 of s3://b/a.tar is a link to caf<U+DCE9>␛.mp4; name that instead."


def tarred(name, data, **fields):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape") + data + bytes(-len(data) % BLOCK)


def noisy_tar(rng):
    """Return a tar of a few members with odd names, types and sizes, some of whose bytes are changed."""
    parts = []
    for _ in range(rng.randrange(1, 5)):
        name, data = rng.choice(NAMES), rng.randbytes(rng.randrange(900))
        kind = rng.choice([tarfile.REGTYPE, tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.GNUTYPE_SPARSE, b"\xff"])
        form = rng.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
        info = tarfile.TarInfo(name)
        info.size, info.type, info.linkname = len(data), kind, rng.choice(NAMES)
        if form == tarfile.PAX_FORMAT and rng.random() < 0.5:
            info.pax_headers = {"path": rng.choice(NAMES), "size": str(rng.choice(SIZES))}
        header = bytearray(info.tobuf(form, "utf-8", "surrogateescape"))
        if rng.random() < 0.5:
            header = bytearray(header[:-BLOCK] + sized(header[-BLOCK:], rng))
        parts.append(bytes(header) + data + bytes(-len(data) % BLOCK))
    data = bytearray(b"".join(parts) + bytes(2 * BLOCK))
    for _ in range(rng.choice([0, 0, 1, 3, 10])):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])


def sized(header, rng):
    """Put bytes for the size that may be base 256, octal, or neither; with the right checksum, usually."""
    header = bytearray(header)
    wild = rng.choice([b"\x80" + rng.randbytes(11), b"\xff" * 12, b"\x80" + b"\xff" * 11, b"7" * 12, rng.randbytes(12)])
    header[124:136] = wild
    return summed(header) if rng.random() < 0.8 else bytes(header)


def noisy_zip(rng):
    """Return a zip of a few members with odd names and numbers in its directory, some of whose bytes are changed."""
    sink = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(sink, "w") as archive:
        warnings.simplefilter("ignore")
        for _ in range(rng.randrange(1, 5)):
            info = zipfile.ZipInfo("x")
            info.filename = rng.choice([name for name in NAMES if name.isprintable() and len(name) < 65_536])
            info.compress_type = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
            archive.writestr(info, rng.randbytes(rng.randrange(900)))
    data = bytearray(sink.getvalue())
    at = data.find(b"PK\x01\x02")
    for _ in range(rng.randrange(4)):
        offset, form = rng.choice([(8, "<H"), (10, "<H"), (20, "<I"), (24, "<I"), (28, "<H"), (30, "<H"), (42, "<I")])
        struct.pack_into(form, data, at + offset, rng.choice([0, 1, 2**15, 2 ** (8 * struct.calcsize(form)) - 1]))
    if rng.random() < 0.3:
        data[at + 46 : at + 47] = b"\0"
    if rng.random() < 0.5:
        data = wide(data, at, rng)
    for _ in range(rng.choice([0, 0, 1, 3, 10])):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def wide(data, at, rng):
    """Give the first entry 64-bit sizes and offset of any value."""
    struct.pack_into("<II", data, at + 20, 2**32 - 1, 2**32 - 1)
    struct.pack_into("<I", data, at + 42, 2**32 - 1)
    [name] = struct.unpack_from("<H", data, at + 28)
    numbers = [rng.choice([0, 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1]) for _ in range(3)]
    extra = struct.pack("<HHQQQ", 1, 24, *numbers)
    struct.pack_into("<H", data, at + 30, len(extra))
    data[at + 46 + name : at + 46 + name] = extra
    end = data.rfind(b"PK\x05\x06")
    [size] = struct.unpack_from("<I", data, end + 12)
    struct.pack_into("<I", data, end + 12, size + len(extra))
    return data


@pytest.mark.parametrize("make", [noisy_tar, noisy_zip])
def test_no_header_raises_anything_but_what_is_wrong_with_the_archive(make):
    rng, kind = random.Random(37), make.__name__.removeprefix("noisy_")
    outcomes = [look(make(rng), kind) for _ in range(300)]

    assert sum(isinstance(each, bytes) for each in outcomes) > 10
    assert sum("damaged" in str(each) for each in outcomes) > 10
