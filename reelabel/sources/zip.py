"""The members of a zip, by its central directory; and their bytes, stored or deflated."""

from __future__ import annotations

import struct
import zipfile
import zlib
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from reelabel.errors import ArchiveUnreadableError
from reelabel.sources.members import MAX_MEMBERS, Content, Member, MemberIndex, RangedFile, plain_name
from reelabel.sources.object_info import redact_uri
from reelabel.sources.source import Source, pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_TAIL_BYTES = 128 * 1024  # the central directory of a thousand members, in one read
_LOCAL_HEADER = struct.Struct("<4sHHHHHIIIHH")
_LOCAL_HEADER_BYTES = 512  # in one read with any usual name
_LOCAL_MAGIC = b"PK\x03\x04"
_ENCRYPTED, _SIZES_FOLLOW, _UTF8 = 0x1, 0x8, 0x800
_ZIP64 = 0xFFFFFFFF
_CHUNK_BYTES = 1024**2
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def read_zip(source: Source) -> MemberIndex:
    """Read the member index of a zip: one or a few reads at its end."""
    file = RangedFile(source, block_bytes=_TAIL_BYTES)
    file.read_at(max(0, file.size_bytes - _TAIL_BYTES), _TAIL_BYTES)
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, struct.error) as error:
        return MemberIndex({}, f"its central directory cannot be read ({error}); copy or pack it again")
    if len(entries) > MAX_MEMBERS:
        return MemberIndex({}, f"it has more than {MAX_MEMBERS:,} members; divide it")
    return MemberIndex.of(_members(entries), size_bytes=file.size_bytes)


def open_zip_member(source: Source, member: Member) -> Content:
    """Return the bytes of a member: a range of the archive if it is stored, else they must be copied out."""

    @cache
    def begin() -> int:
        """Return where its bytes begin; read on demand, so that looking up many members takes a single read."""
        return _data_start(source, member)

    def copy() -> Iterator[bytes]:
        pieces = pieces_of(source, begin(), member.packed_size)
        return _verified(source, member, _inflated(source, member, pieces) if member.method else pieces)

    return Content(
        size=member.size,
        version=f"{member.version}+{member.crc}",
        read=None if member.method else lambda start, size: source.read(begin() + start, size),
        copy=copy,
    )


def _members(entries: Sequence[zipfile.ZipInfo]) -> Iterator[Member]:
    starts = sorted(entry.header_offset for entry in entries)
    after = dict(pairwise(starts))
    for entry in entries:
        end = entry.header_offset + _LOCAL_HEADER.size + entry.compress_size
        overlaps = end > after.get(entry.header_offset, end)
        yield Member(
            entry.orig_filename,
            entry.header_offset,
            entry.file_size,
            entry.compress_size,
            entry.compress_type,
            entry.CRC,
            "overlaps the next member; pack the archive again" if overlaps else _refusal(entry),
        )


def _refusal(entry: zipfile.ZipInfo) -> str:
    if entry.orig_filename.endswith("/"):
        return "is a folder; name a video in it"
    if entry.flag_bits & _ENCRYPTED:
        return "is encrypted; pack it without a password"
    if entry.compress_type not in _METHODS:
        name = zipfile.compressor_names.get(entry.compress_type, f"method {entry.compress_type}")  # type: ignore[attr-defined]
        return f"is compressed with {name}; pack it with `zip -0`, which stores it"
    if entry.compress_type == zipfile.ZIP_STORED and entry.compress_size != entry.file_size:
        return "is stored, but in another number of bytes than it has; pack it again"
    return ""


def _data_start(source: Source, member: Member) -> int:
    """Return where the bytes of a member begin, from its local header, which must agree with the central directory."""
    header = source.read(member.start, _LOCAL_HEADER_BYTES)
    if len(header) < _LOCAL_HEADER.size or not header.startswith(_LOCAL_MAGIC):
        raise _contradiction(source, member, "has no header where the central directory says")
    _, _, flags, method, _, _, crc, packed, size, name_bytes, extra_bytes = _LOCAL_HEADER.unpack_from(header)
    start = member.start + _LOCAL_HEADER.size + name_bytes + extra_bytes
    written = header[_LOCAL_HEADER.size :][:name_bytes]
    if len(written) < name_bytes:
        written = source.read(member.start + _LOCAL_HEADER.size, name_bytes)
    name = written.decode("utf-8" if flags & _UTF8 else "cp437", "replace")
    known = (member.crc, member.packed_size, member.size)
    has_sizes = not flags & _SIZES_FOLLOW and _ZIP64 not in {packed, size}
    if flags & _ENCRYPTED or method != member.method or (has_sizes and (crc, packed, size) != known):
        raise _contradiction(source, member, "is described otherwise by its own header")
    if plain_name(name) != member.name:
        raise _contradiction(source, member, f"is called {name} by its own header")
    if start + member.packed_size > source.info.size_bytes:
        raise _contradiction(source, member, "ends after the end of the archive")
    return int(start)


def _inflated(source: Source, member: Member, pieces: Iterator[bytes]) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for piece in pieces:
            packed = piece
            while packed and not unpacker.eof:
                yield unpacker.decompress(packed, _CHUNK_BYTES)
                packed = unpacker.unconsumed_tail
        yield unpacker.flush()  # all input is consumed: it holds no more than one window
    except zlib.error:
        raise _contradiction(source, member, "is damaged") from None


def _verified(source: Source, member: Member, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Pass on the bytes of a member, never more than it has, and check their number and CRC."""
    left, crc = member.size, 0
    for piece in pieces:
        left, crc = left - len(piece), zlib.crc32(piece, crc)
        if left < 0:
            raise _contradiction(source, member, f"unpacks to more than the {member.size:,} bytes that it states")
        yield piece
    if left or crc != member.crc:
        raise _contradiction(source, member, "is damaged")


def _contradiction(source: Source, member: Member, what: str) -> ArchiveUnreadableError:
    return ArchiveUnreadableError(
        f"The member {member.name} of {redact_uri(source.info.uri)} {what}; copy or pack the archive again."
    )
