"""Members of archives: the index of an archive, the bytes of a member, and caches of indexes."""

from __future__ import annotations

import io
from collections import OrderedDict
from concurrent.futures import Future
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from reelabel import arrow as pa
from reelabel.errors import ArchiveUnreadableError, MemberMissingError, RangesIgnoredError, ReelabelError
from reelabel.sources.object_info import ObjectInfo, changed, redact_uri
from reelabel.sources.source import Source
from reelabel.sources.video_file import Seekable
from reelabel.text import escape_controls

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator


_T = TypeVar("_T")
_SMALLEST_BLOCK_BYTES = 4 * 1024
_LARGEST_BLOCK_BYTES = 4 * 1024**2
# Python's readers trust the sizes that an archive states for its headers.
_MAX_READ_BYTES = 256 * 1024**2


VERSION_MARK = "#"  # between the fingerprint of an archive and the version of a member


class RangedFile(Seekable, io.RawIOBase):
    """A read-only binary file over an archive. It holds one block, which grows while it is read in sequence."""

    def __init__(self, source: Source, *, block_bytes: int = _SMALLEST_BLOCK_BYTES) -> None:
        self.size_bytes = source.size_bytes
        self._source = source
        self._first_block_bytes = self._block_bytes = block_bytes
        self._block_start = 0
        self._block = b""

    def read_at(self, start: int, size: int) -> bytes:
        self.seek(start)
        return self.read(size)

    def read(self, size: int = -1) -> bytes:
        """Read `size` bytes, fewer only at the end of the archive.

        Raises ArchiveUnreadableError if more is asked for than headers can have, and ObjectChangedError if the archive
        ends before its size.
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
        return True

    def _fetch(self, size: int) -> None:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Where a member's bytes are, and what identifies it within a version of the archive.

    `read` reads a range that lies within it; None if it must be copied out. `copy` yields all of it. `note` says what
    is unusual about reading it, as a clause.
    """

    size: int
    version: str
    read: Callable[[int, int], bytes] | None
    copy: Callable[[], Iterator[bytes]]
    note: str = ""


class MemberSource(Source):
    def __init__(self, archive: Source, uri: str, content: Content) -> None:
        found = archive.info
        fingerprint = f"{found.fingerprint}{VERSION_MARK}{content.version}"
        info = ObjectInfo(uri=uri, size_bytes=content.size, fingerprint=fingerprint, note=content.note)
        super().__init__(info)
        self.max_wait_s = archive.max_wait_s
        self._archive, self._content = archive, content

    def read(self, start: int, size: int) -> bytes:
        """Read a range; raise RangesIgnoredError if the member is compressed."""
        if self._content.read is None:
            raise RangesIgnoredError(f"{redact_uri(self.info.uri)} is compressed; copy the whole member.")
        size = min(size, self.size_bytes - start)
        return self._content.read(start, size) if start >= 0 and size > 0 else b""

    def pieces(self) -> Iterator[bytes]:
        """Yield all of it, and raise ArchiveUnreadableError if it is found to be damaged."""
        return self._content.copy()

    def check_unchanged(self) -> None:
        self._archive.check_unchanged()


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
    """One member. `refusal` is why it cannot be read, as a clause; empty if it can.

    `start` is its first byte in a tar, and its local header in a zip; `packed_size` is what it takes in the archive.
    `method` is how it is compressed, as zip numbers the methods, and 0 if it is not; `crc` is the CRC-32 that a zip
    states.
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
        return f"{self.start}+{self.size}"


@dataclass(frozen=True, slots=True)
class MemberIndex:
    """The members of one version of an archive, by name: if there is `damage`, which is a clause, those before it."""

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
            kept = member._replace(name=name, refusal=escape_controls(member.refusal))
            if not member.name.partition("\0")[0]:
                damage = damage or "it has a member without a name; pack it again"
                continue
            if not name.partition("\0")[0]:
                continue  # "./", the folder itself
            if not 0 <= kept.start <= kept.start + kept.packed_size <= size_bytes or not 0 <= kept.size <= _MAX_SIZE:
                refusal = "is cut short by the end of the archive; copy the archive again"
                kept = Member(name, start=0, size=0, packed_size=0, refusal=refusal)  # what it states may be anything
            if name in members:
                refusal = "occurs more than once, so that it is unclear which one is meant; rename one of them"
                kept = kept._replace(refusal=refusal)
            members[name] = kept
        return cls(members, damage)

    def find(self, name: str, uri: str) -> Member:
        """Return a member of the archive `uri`, without its leading `./`.

        Raises MemberMissingError if there is none, and ArchiveUnreadableError if it cannot be read, or if the archive
        is damaged before it.
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
        last = name.rpartition("/")[2]
        alike = next((each for each in self.members if each.rpartition("/")[2] == last), None)
        return f": it has {alike}" if alike and last else ""


def encode_members(index: MemberIndex) -> bytes:
    rows = list(index.members.values())
    names = pa.array([row.name.encode(errors="surrogateescape") for row in rows], pa.large_binary())
    values = {name: pa.array([getattr(row, name) for row in rows], kind) for name, kind in _TYPES.items()}
    table = pa.table({"name": names, **values}).replace_schema_metadata({_DAMAGE: index.damage.encode()})
    return pa.arrow_file(table, options=pa.ipc.IpcWriteOptions(compression="zstd"))


def decode_members(data: bytes | memoryview, archive: Source) -> MemberIndex:
    """Decode the result of `encode_members`, and check it against the archive; ValueError if it is invalid."""
    try:
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        damage = table.schema.metadata[_DAMAGE].decode()
        names = [name.decode(errors="surrogateescape") for name in table["name"].to_pylist()]
        if len(names) > MAX_MEMBERS or any(table[name].null_count for name in _TYPES):
            raise ValueError("not the members of an archive")
        members = map(Member, names, *(table[name].cast(kind).to_pylist() for name, kind in _TYPES.items()))
        return MemberIndex.of(members, size_bytes=archive.size_bytes, damage=escape_controls(damage))
    except (pa.ArrowException, OSError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no member index ({type(error).__name__})") from None


def plain_name(name: str) -> str:
    """Return a member's name without a leading `./`, which `tar` writes if it is given a folder."""
    while name.startswith(_HERE):
        name = name.removeprefix(_HERE)
    return name


class SingleFlightCache(Generic[_T]):
    """Results by key. Threads that want the same one wait for the first; failures are not cached. Thread-safe.

    Waiting threads share a ReelabelError; after an unexpected exception, each tries for itself.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._results: OrderedDict[Hashable, Future[_T]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], _T]) -> _T:
        with self._lock:
            mine: Future[_T] = Future()
            known = self._results.setdefault(key, mine)
            self._results.move_to_end(key)
            if len(self._results) > self._keep:
                self._results.popitem(last=False)
        if known is mine:
            try:
                mine.set_result(make())
            except BaseException as error:  # noqa: BLE001 - raised again below; others wait for it
                with self._lock:
                    if self._results.get(key) is mine:
                        del self._results[key]
                mine.set_exception(error)
        failure = known.exception()
        if failure is not None and known is not mine and not isinstance(failure, ReelabelError):
            return self.get(key, make)
        if failure is not None:
            raise copy(failure) from failure  # raised again, it would hold ever more frames of the stack
        return known.result()


class IndexStore(Protocol):
    """A store of indexes of archives. Thread-safe."""

    def find_archive_index(self, *, uri: str, fingerprint: str, part: str) -> memoryview | None:
        """Return a saved index of a version of an archive; None if it is missing or must not be used."""

    def write_archive_index(self, data: bytes, *, uri: str, fingerprint: str, part: str) -> None: ...


class SavedIndexes(Generic[_T]):
    """Indexes of one kind: read once for all threads, cached while recently used, and saved for other runs."""

    def __init__(
        self,
        store: IndexStore | None,
        *,
        encode: Callable[[_T], bytes],
        decode: Callable[[memoryview, Source], _T],
        keep: int,
    ) -> None:
        self._store, self._encode, self._decode = store, encode, decode
        self._cache = SingleFlightCache[_T](keep)

    def get(self, archive: Source, make: Callable[[], _T], *, part: str = "") -> _T:
        uri, fingerprint, store = archive.info.uri, archive.info.fingerprint, self._store

        def find_or_make() -> _T:
            if store is None:
                return make()
            data = store.find_archive_index(uri=uri, fingerprint=fingerprint, part=part)
            if data is not None:
                with suppress(ValueError):
                    return self._decode(data, archive)
            index = make()
            store.write_archive_index(self._encode(index), uri=uri, fingerprint=fingerprint, part=part)
            return index

        return self._cache.get((uri, fingerprint, part), find_or_make)
