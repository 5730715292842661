"""Archives and their members: the archive as a file, the index of its members, and the bytes of one.

The index is read once an archive, and cached beside its frame files.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from reelabel import arrow as pa
from reelabel.errors import ArchiveUnreadableError, MemberMissingError, RangesIgnoredError
from reelabel.sources.folder import partial_file
from reelabel.sources.object_info import changed, redact_uri
from reelabel.sources.sparse_file import ByteSource
from reelabel.sources.video_file import Seekable
from reelabel.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from reelabel.sources.object_info import ObjectInfo


_SMALLEST_BLOCK_BYTES = 4 * 1024
_LARGEST_BLOCK_BYTES = 4 * 1024**2
# Python's readers trust the sizes that an archive states for its headers.
_MAX_READ_BYTES = 256 * 1024**2


class ArchiveSource(ByteSource, Protocol):
    """One version of an archive, local or remote. A read returns fewer bytes if it ends before."""

    @property
    def info(self) -> ObjectInfo:
        """Its URI, size and fingerprint."""

    def require_unchanged(self) -> None:
        """Raise ObjectChangedError if it has changed since it was opened."""


class RangedFile(Seekable, io.RawIOBase):
    """A read-only binary file over an archive. It holds one block, which grows while it is read in sequence."""

    def __init__(self, source: ArchiveSource, *, block_bytes: int = _SMALLEST_BLOCK_BYTES) -> None:
        """Start at the beginning; `block_bytes` is the size of blocks after a jump."""
        self.size_bytes = source.size_bytes
        self._source = source
        self._first_block_bytes = self._block_bytes = block_bytes
        self._block_start = 0
        self._block = b""

    def read_at(self, start: int, size: int) -> bytes:
        """Read from a position, fewer bytes only at the end of the archive."""
        self.seek(start)
        return self.read(size)

    def read(self, size: int = -1) -> bytes:
        """Read `size` bytes, fewer only at the end of the archive.

        Raises:
            ArchiveUnreadableError: More is asked for than headers can have.
            ObjectChangedError: The archive ends before its size.
        """
        left = max(0, self.size_bytes - self._position)
        size = left if size < 0 else min(size, left)
        if size > _MAX_READ_BYTES:
            raise ArchiveUnreadableError(
                f"{redact_uri(self._source.info.uri)} states {size:,} bytes of headers; it is damaged, pack it again."
            )
        offset = self._position - self._block_start
        if not (offset >= 0 and offset + size <= len(self._block)):
            self._fetch(size)
            offset = self._position - self._block_start
        self._position += size
        return self._block[offset : offset + size]

    def readable(self) -> bool:
        """Return True."""
        return True

    def _fetch(self, size: int) -> None:
        """Make the block begin at the position, and hold at least `size` bytes."""
        offset = self._position - self._block_start
        is_sequential = bool(self._block) and 0 <= offset <= len(self._block)
        grown = min(2 * self._block_bytes, max(_LARGEST_BLOCK_BYTES, self._first_block_bytes))
        self._block_bytes = grown if is_sequential else self._first_block_bytes
        known = self._block[offset:] if is_sequential else b""
        start = self._position + len(known)
        wanted = min(max(size - len(known), self._block_bytes), self.size_bytes - start)
        data = self._source.read(start, wanted) if wanted > 0 else b""
        if len(data) < wanted:
            raise changed(self._source.info.uri)
        self._block_start, self._block = self._position, known + data


_PIECE_BYTES = 8 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Place of a member's bytes.

    Attributes:
        size: Its size, in bytes.
        version: What of the archive it is; with the archive's fingerprint, its own.
        read: Reads a range, which lies within it; None if it must be copied out to be read.
        copy: Yields all of it, in pieces.
        note: What its reader should know, as a clause; usually empty.
    """

    size: int
    version: str
    read: Callable[[int, int], bytes] | None
    copy: Callable[[], Iterator[bytes]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """A member of an open archive; also a `reelabel.sources.sparse_file.ByteSource`.

    Attributes:
        source: The archive.
        info: The member's URI, size and fingerprint.
        content: Its bytes.
    """

    source: ArchiveSource
    info: ObjectInfo
    content: Content

    @property
    def size_bytes(self) -> int:
        """Total length in bytes."""
        return self.info.size_bytes

    @property
    def max_wait_s(self) -> float:
        """Seconds that a read may take."""
        return self.source.max_wait_s

    @property
    def objects(self) -> ArchiveMember:
        """Itself: it copies from the archive that is open."""
        return self

    def read(self, start: int, size: int) -> bytes:
        """Read `size` bytes from `start`, fewer if it ends before.

        Raises:
            RangesIgnoredError: It is compressed; copy it.
        """
        if self.content.read is None:
            raise RangesIgnoredError(f"{redact_uri(self.info.uri)} is compressed; copy the whole member.")
        size = min(size, self.size_bytes - start)
        return self.content.read(start, size) if start >= 0 and size > 0 else b""

    def download(self, uri: str, path: Path, *, fingerprint: str | None = None, max_bytes: int | None = None) -> int:
        """Copy it to the file `path`, which is removed on failure; return its size.

        Raises:
            ObjectChangedError: The archive has changed.
            ObjectTooLargeError: It is larger than `max_bytes`.
            ArchiveUnreadableError: It is damaged.
        """
        assert uri == self.info.uri
        with partial_file(path) as file:
            for piece in self.pieces(fingerprint=fingerprint, max_bytes=max_bytes):
                file.write(piece)
            return file.tell()

    def pieces(self, *, fingerprint: str | None, max_bytes: int | None) -> Iterator[bytes]:
        """Yield all of it, after checking what `download` checks."""
        self.info.require(fingerprint=fingerprint, max_bytes=max_bytes)
        yield from self.content.copy()

    def require_unchanged(self) -> None:
        """Check that the archive has not changed since it was opened.

        Raises:
            ObjectChangedError: It has.
        """
        self.source.require_unchanged()


def pieces_of(source: ArchiveSource, start: int, size: int) -> Iterator[bytes]:
    """Yield a range of an archive in pieces.

    Raises:
        ObjectChangedError: The archive has become shorter.
    """
    for at in range(start, start + size, _PIECE_BYTES):
        wanted = min(_PIECE_BYTES, start + size - at)
        piece = source.read(at, wanted)
        if len(piece) != wanted:
            raise changed(source.info.uri)
        yield piece


MAX_MEMBERS = 2_000_000
_MAX_SIZE = 2**63 - 1
_DAMAGE = b"damage"
_HERE = "./"
_TYPES = {
    "start": "int64",
    "size": "int64",
    "packed_size": "int64",
    "method": "int32",
    "crc": "int64",
    "refusal": "string",
}


class Member(NamedTuple):
    """One member.

    Attributes:
        name: Its name in the archive, without a leading `./`.
        start: Where it begins: its first byte in a tar, its local header in a zip.
        size: Its size, in bytes.
        packed_size: How many bytes it takes in the archive.
        method: How it is compressed, as zip numbers the methods; 0 if it is not.
        crc: CRC-32 of its bytes in a zip.
        refusal: Why it cannot be read, as a clause; empty if it can.
    """

    name: str
    start: int
    size: int
    packed_size: int
    method: int = 0
    crc: int = 0
    refusal: str = ""

    @property
    def version(self) -> str:
        """Its place, which identifies one version of it within a version of the archive."""
        return f"{self.start}+{self.size}"


@dataclass(frozen=True, slots=True)
class MemberIndex:
    """The members of one version of an archive.

    Attributes:
        members: By name.
        damage: The archive's damage, as a clause; empty without any. Members before the damage are known.
    """

    members: dict[str, Member]
    damage: str = ""

    @classmethod
    def of(cls, found: Iterable[Member], *, size_bytes: int, damage: str = "") -> MemberIndex:
        """Index members of an archive of `size_bytes`; those that share a name, or lie outside of it, are refused.

        The archive is damaged if one has no name.
        """
        members: dict[str, Member] = {}
        for member in found:
            name = plain_name(member.name)
            kept = member._replace(name=name, refusal=printable(member.refusal))
            if not member.name.partition("\0")[0]:
                damage = damage or "it has a member without a name; pack it again"
                continue
            if not 0 <= kept.start <= kept.start + kept.packed_size <= size_bytes or not 0 <= kept.size <= _MAX_SIZE:
                refusal = "is cut short by the end of the archive; copy the archive again"
                kept = Member(name, start=0, size=0, packed_size=0, refusal=refusal)  # what it states may be anything
            if name in members:
                refusal = "occurs more than once, so that it is unclear which one is meant; rename one of them"
                kept = kept._replace(refusal=refusal)
            members[name] = kept
        return cls(members, damage)

    def find(self, name: str, uri: str) -> Member:
        """Return a member that can be read; `uri` is that of the archive.

        Raises:
            MemberMissingError: There is none of that name.
            ArchiveUnreadableError: It cannot be read, or the archive is damaged before it.
        """
        shown = redact_uri(uri)
        member = self.members.get(plain_name(name))
        if member is None and self.damage:
            raise ArchiveUnreadableError(f"{shown} is damaged, so that {name} is not found in it: {self.damage}.")
        if member is None:
            raise MemberMissingError(f"There is no member {name} in {shown}; check its name{self._hint(name)}.")
        if member.refusal:
            raise ArchiveUnreadableError(f"The member {name} of {shown} {member.refusal}.")
        return member

    def _hint(self, name: str) -> str:
        """Name a member that has the same last part."""
        last = name.rpartition("/")[2]
        alike = next((each for each in self.members if each.rpartition("/")[2] == last), None)
        return f": it has {alike}" if alike and last else ""


def encode_members(index: MemberIndex) -> bytes:
    """Encode a member index as an Arrow file, for the cache."""
    rows = list(index.members.values())
    names = pa.array([row.name.encode(errors="surrogateescape") for row in rows], pa.large_binary())
    values = {name: pa.array([getattr(row, name) for row in rows], kind) for name, kind in _TYPES.items()}
    table = pa.table({"name": names, **values}).replace_schema_metadata({_DAMAGE: index.damage.encode()})
    return pa.arrow_file(table, options=pa.ipc.IpcWriteOptions(compression="zstd"))


def decode_members(data: bytes | memoryview) -> MemberIndex:
    """Decode the result of `encode_members`.

    Raises:
        ValueError: The bytes are something else.
    """
    try:
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        damage = table.schema.metadata[_DAMAGE].decode()
        names = [name.decode(errors="surrogateescape") for name in table["name"].to_pylist()]
        members = map(Member, names, *(table[name].to_pylist() for name in _TYPES))
        return MemberIndex({member.name: member for member in members}, damage)
    except (pa.ArrowException, OSError, KeyError, TypeError) as error:
        raise ValueError(f"no member index ({type(error).__name__})") from None


def plain_name(name: str) -> str:
    """Return a member's name without a leading `./`, which `tar` writes if it is given a folder."""
    while name.startswith(_HERE):
        name = name.removeprefix(_HERE)
    return name
