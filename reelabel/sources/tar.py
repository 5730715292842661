"""The members of a tar: its headers are spread over the whole file, so they are read by range, one after another.

`tarfile` only parses single headers here: its own iteration trusts the sizes that headers state, follows chains of
headers by recursion, and can be made to loop. Over a network, a walk waits for one response after another. So a large
archive is walked from several places at once, each time from the first header found there. What such a walk has found
is used only where the walk from the beginning arrives as well: the result does not depend on guesses.
"""

from __future__ import annotations

import math
import tarfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from reelabel.sources.members import MAX_MEMBERS, Content, Member, MemberIndex, RangedFile
from reelabel.sources.source import Source, pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterator


_BLOCK = tarfile.BLOCKSIZE
_END = bytes(_BLOCK)
_MAGIC_AT, _MAGIC = 257, b"ustar"
_IS_EXTENDED_AT = {tarfile.GNUTYPE_SPARSE: 482}
_NEXT_IS_EXTENDED_AT = 504
_LONG_NAMES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_PAX = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE)
_MAX_PREFIXES = 8
_MAX_PREFIX_BYTES = 1024**2
_LENGTH_BYTES = 8  # longer than the length of any record in a header
_WALKS = 8
_TRIAL = 32  # members from which the distance between headers is estimated
_WORTHWHILE = 64  # headers left
_SEARCHED_DISTANCES = 4
_MOST_SEARCHED_BYTES, _LEAST_SEARCHED_BYTES = 1024**2, 16 * 1024
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_LINKS = (tarfile.LNKTYPE, tarfile.SYMTYPE)


class _DamageError(Exception):
    """The archive cannot be read further; the message is a clause."""


class _Unit(NamedTuple):
    """A member with the headers that precede it; None marks the end of the archive."""

    member: Member | None
    end: int


def read_tar(source: Source) -> MemberIndex:
    """Read the member index of a tar: one small read a member, eight at once if they are many and remote."""
    file = RangedFile(source)
    found: list[Member] = []
    damage = ""
    try:
        found.extend(_walk(file, source))  # up to the damage, if there is any
    except _DamageError as error:
        damage = str(error)
    return MemberIndex.of(found, size_bytes=file.size_bytes, damage=damage)


def open_tar_member(source: Source, member: Member) -> Content:
    return Content(
        size=member.size,
        version=member.version,
        read=lambda start, size: source.read(member.start + start, size),
        copy=partial(pieces_of, source, member.start, member.size),
    )


def _walk(file: RangedFile, source: Source) -> Iterator[Member]:
    at = count = 0
    known: dict[int, _Unit] = {}
    while True:
        unit = known.get(at) or _read_unit(file, at)
        if unit.member is None:
            return
        if count == MAX_MEMBERS:
            raise _DamageError(f"it has more than {MAX_MEMBERS:,} members; divide it")
        yield unit.member
        at, count = unit.end, count + 1
        if count == _TRIAL and math.isfinite(source.max_wait_s):
            known = _walk_ahead(source, at, distance=at // count)


def _walk_ahead(source: Source, at: int, *, distance: int) -> dict[int, _Unit]:
    """Walk from several places beyond `at`; return what was found, by position."""
    left = source.info.size_bytes - at
    if left < _WORTHWHILE * distance:
        return {}
    places = [(at + left * number // _WALKS) // _BLOCK * _BLOCK for number in range(_WALKS + 1)]
    walk = partial(_walk_part, source, distance=distance)
    with ThreadPoolExecutor(_WALKS) as threads:
        return {at: unit for part in threads.map(walk, places, places[1:]) for at, unit in part.items()}


def _walk_part(source: Source, start: int, end: int, *, distance: int) -> dict[int, _Unit]:
    file = RangedFile(source)
    found: dict[int, _Unit] = {}
    ahead = RangedFile(source, block_bytes=max(_LEAST_SEARCHED_BYTES, min(distance, _MOST_SEARCHED_BYTES)))
    at = _find_header(ahead, start, min(end, start + _SEARCHED_DISTANCES * distance))
    while at is not None and at < end and len(found) < MAX_MEMBERS:
        try:
            unit = _read_unit(file, at)
        except _DamageError:
            break  # met again, and reported, by the walk from the beginning
        found[at] = unit
        at = unit.end if unit.member else None
    return found


def _find_header(file: RangedFile, start: int, end: int) -> int | None:
    for at in range(start, end, _BLOCK):
        block = file.read_at(at, _BLOCK)
        if block[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] == _MAGIC:
            try:
                tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except tarfile.HeaderError:
                continue
            return at
    return None


def _read_unit(file: RangedFile, start: int) -> _Unit:
    """Read a member's headers; raise _DamageError if they are not those of a tar."""
    at, pax, long_name = start, dict[str, str](), ""
    for _ in range(_MAX_PREFIXES):
        header = _header(file, at)
        if header is None:
            return _Unit(None, at)
        if header.type not in (*_LONG_NAMES, *_PAX):
            return _member(file, header, at, name=pax.get("path") or long_name or header.name, pax=pax)
        if not 0 <= header.size <= _MAX_PREFIX_BYTES:
            raise _DamageError(f"the header at byte {at:,} states {header.size:,} bytes")
        data = file.read_at(at + _BLOCK, header.size)
        if header.type == tarfile.GNUTYPE_LONGNAME:
            long_name = data.rstrip(b"\0").decode(errors="surrogateescape")
        elif header.type in _PAX and header.type != tarfile.XGLTYPE:
            pax |= _pax_records(data, at)
        at += _BLOCK + _padded(header.size)
    raise _DamageError(f"byte {start:,} begins a chain of headers without a member")


def _header(file: RangedFile, at: int) -> tarfile.TarInfo | None:
    block = file.read_at(at, _BLOCK)
    try:
        return None if block == _END else tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        if at >= file.size_bytes:
            raise _DamageError(f"it is cut short at byte {file.size_bytes:,}") from None
        if kind := next((name for magic, name in _COMPRESSED.items() if at == 0 and block.startswith(magic)), None):
            raise _DamageError(f"it is compressed as a whole, with {kind}; unpack that") from None
        raise _DamageError(f"there is no header of a tar at byte {at:,} ({error})") from None


def _member(file: RangedFile, header: tarfile.TarInfo, at: int, *, name: str, pax: dict[str, str]) -> _Unit:
    has_data = header.isreg() or header.type not in tarfile.SUPPORTED_TYPES
    size = header.size
    if (stated := pax.get("size")) is not None:
        if not (stated.isascii() and stated.isdecimal() and len(stated) < 19):  # noqa: PLR2004 - fits 64 bits
            raise _DamageError(f"the member at byte {at:,} states a size of {stated[:20]!r}")
        size = int(stated)
    if size < 0:
        raise _DamageError(f"the member at byte {at:,} states {size:,} bytes")
    start = _data_start(file, header, at)
    member = Member(name, start, size, size, refusal=_refusal(header, pax))
    return _Unit(member, start + (_padded(size) if has_data else 0))


def _data_start(file: RangedFile, header: tarfile.TarInfo, at: int) -> int:
    flag_at = _IS_EXTENDED_AT.get(header.type)
    while flag_at is not None:
        block = file.read_at(at, _BLOCK)
        is_extended = len(block) == _BLOCK and block[flag_at] != 0
        at, flag_at = at + _BLOCK, _NEXT_IS_EXTENDED_AT if is_extended else None
    return at if header.type in _IS_EXTENDED_AT else at + _BLOCK


def _refusal(header: tarfile.TarInfo, pax: dict[str, str]) -> str:
    if header.isdir():
        return "is a folder; name a video in it"
    if header.type in _LINKS:
        return f"is a link to {header.linkname}; name that instead"
    if header.type == tarfile.GNUTYPE_SPARSE or any(key.startswith("GNU.sparse.") for key in pax):
        return "is stored with its holes left out; pack it without --sparse"
    return "" if header.isreg() else "is not a regular file"


def _pax_records(data: bytes, at: int) -> dict[str, str]:
    """Parse `length key=value` lines; see pax(1), "pax Extended Header"."""
    records: dict[str, str] = {}
    start, end_of_records = 0, len(data.rstrip(b"\0"))
    while start < end_of_records:
        length, _, _ = data[start : start + _LENGTH_BYTES].partition(b" ")
        end = start + (int(length) if length.isdigit() and len(length) < _LENGTH_BYTES else 0)
        key, equals, value = data[start + len(length) + 1 : max(start, end - 1)].partition(b"=")
        if not equals or data[end - 1 : end] != b"\n":
            raise _DamageError(f"the extended header at byte {at:,} is malformed")
        records[key.decode(errors="replace")] = value.decode(errors="surrogateescape")
        start = end
    return records


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK
