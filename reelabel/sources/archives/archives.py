"""Members of archives, by URI, wherever the archive is."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Self

from reelabel.errors import (
    ArchiveUnreadableError,
    ConfigurationError,
    ObjectError,
    RangesIgnoredError,
    VideoError,
    VideoRefusedError,
)
from reelabel.sources.archives.member_uri import MemberUri, split_member
from reelabel.sources.archives.members import ArchiveMember, decode_members, encode_members
from reelabel.sources.archives.parquet import PARQUET_SUFFIX, ParquetRows
from reelabel.sources.archives.saved_indexes import SavedIndexes, SingleFlightCache
from reelabel.sources.archives.tar import open_tar_member, read_tar
from reelabel.sources.archives.zip import open_zip_member, read_zip
from reelabel.sources.object_info import ObjectInfo, redact_uri

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from reelabel.sources.archives.members import ArchiveSource, Content, MemberIndex
    from reelabel.sources.archives.saved_indexes import IndexStore
    from reelabel.sources.object_store import ObjectStore

_INDEX_READERS = {".tar": read_tar, ".zip": read_zip}
_OPENERS = {".tar": open_tar_member, ".zip": open_zip_member}
_KEPT_INDEXES = 32
_KEPT_INFOS = 4096
_MARK = "#"  # between the fingerprint of an archive and what of it a member is


@dataclass(frozen=True, slots=True)
class RemoteArchive:
    """One version of an archive in a store, as an `ArchiveSource`."""

    objects: ObjectStore
    info: ObjectInfo

    @property
    def size_bytes(self) -> int:
        """Total length in bytes."""
        return self.info.size_bytes

    @property
    def max_wait_s(self) -> float:
        """Seconds that a read may take."""
        return self.objects.max_wait_s(self.info.uri)

    def read(self, start: int, size: int) -> bytes:
        """Read `size` bytes from `start`, fewer if it ends before.

        Raises:
            VideoRefusedError: Its server sends no ranges.
        """
        try:
            return self.objects.read_range(self.info.uri, start=start, size=size, fingerprint=self.info.fingerprint)
        except RangesIgnoredError:
            raise VideoRefusedError(
                f"The server of {redact_uri(self.info.uri)} does not send ranges, so no member can be read; "
                "copy the archive to a folder, or to a store that does."
            ) from None

    def require_unchanged(self) -> None:
        """Do nothing: each read has checked it."""


class Archives:
    """Reads members of archives. Thread-safe; pickled without what it has read."""

    def __init__(self, objects: ObjectStore, store: IndexStore | None) -> None:
        """Read archives from `objects`, and save their indexes in `store`."""
        self._objects = objects
        self._store = store
        self._indexes = SavedIndexes(store, encode=encode_members, decode=decode_members, keep=_KEPT_INDEXES)
        self._rows = ParquetRows(store)
        self._infos = SingleFlightCache[ObjectInfo](_KEPT_INFOS)

    def __reduce__(self) -> tuple[type[Self], tuple[ObjectStore, IndexStore | None]]:
        """Pickle what it reads from, but nothing that it has read."""
        return type(self), (self._objects, self._store)

    def open(self, source: ArchiveSource, uri: str) -> ArchiveMember:
        """Find a member of an open archive.

        Raises:
            MemberMissingError: There is none.
            ArchiveUnreadableError: The archive is damaged, or the member cannot be read.
            VideoRefusedError: The URI does not name a member, or ranges cannot be read.
        """
        place = _split(uri)
        content = self._content(source, place)
        info = ObjectInfo(
            uri=uri,
            size_bytes=content.size,
            fingerprint=f"{source.info.fingerprint}{_MARK}{content.version}",
            modified=source.info.modified,
            note=content.note,
        )
        return ArchiveMember(source, info, content)

    def max_wait_s(self, uri: str) -> float:
        """Return the most seconds that a request can take before it fails."""
        return self._objects.max_wait_s(_split(uri).archive)

    def stat(self, uri: str) -> ObjectInfo:
        """Return the metadata of a member."""
        return self._member(uri, None).info

    def stat_many(self, uris: Iterable[str]) -> dict[str, ObjectInfo]:
        """Return the metadata of members, with one request an archive; those that fail are left out, as are rows."""
        found: dict[str, ObjectInfo] = {}
        places = sorted((_split(uri).archive, uri) for uri in uris if _split(uri).suffix in _OPENERS)
        for archive, members in groupby(places, key=lambda place: place[0]):
            try:
                source = self._archive(archive, None)
            except (ObjectError, ConfigurationError):
                continue
            for _, uri in members:
                try:
                    found[uri] = self.open(source, uri).info
                except (ObjectError, VideoError, ConfigurationError):
                    continue
        return found

    def index_of(self, archive: str) -> MemberIndex:
        """Return the members of a tar or zip."""
        return self._index(self._archive(archive, None), MemberUri(archive, "").suffix)

    def read(self, uri: str, *, fingerprint: str | None, max_bytes: int | None) -> bytes:
        """Read a whole member."""
        return b"".join(self._member(uri, fingerprint).pieces(fingerprint=fingerprint, max_bytes=max_bytes))

    def read_range(self, uri: str, *, start: int, size: int, fingerprint: str) -> bytes:
        """Read a range of a member."""
        member = self._member(uri, fingerprint)
        member.info.require(fingerprint=fingerprint, max_bytes=None)
        return member.read(start, size)

    def download(self, uri: str, path: Path, *, fingerprint: str | None, max_bytes: int | None) -> int:
        """Copy a member to `path`."""
        return self._member(uri, fingerprint).download(uri, path, fingerprint=fingerprint, max_bytes=max_bytes)

    def _member(self, uri: str, fingerprint: str | None) -> ArchiveMember:
        version = fingerprint.rpartition(_MARK)[0] if fingerprint else None
        return self.open(self._archive(_split(uri).archive, version), uri)

    def _archive(self, uri: str, fingerprint: str | None) -> RemoteArchive:
        """Return an archive, looked up unless this version of it is known."""

        def look_up() -> ObjectInfo:
            info = self._objects.stat(uri)
            info.require(fingerprint=fingerprint, max_bytes=None)
            return info

        if fingerprint is not None:
            return RemoteArchive(self._objects, self._infos.get((uri, fingerprint), look_up))
        info = self._objects.stat(uri)
        return RemoteArchive(self._objects, self._infos.get((uri, info.fingerprint), lambda: info))

    def _content(self, source: ArchiveSource, place: MemberUri) -> Content:
        if place.suffix == PARQUET_SUFFIX:
            return self._rows.open(source, place)
        if place.suffix not in _OPENERS:
            raise ArchiveUnreadableError(
                f"{redact_uri(place.archive)} is compressed as a whole, so its members cannot be located; "
                "decompress it to a .tar, or repack it as a .zip."
            )
        if not place.name:
            raise VideoRefusedError(f"{redact_uri(place.archive)}# does not name a member; write ARCHIVE#MEMBER.")
        member = self._index(source, place.suffix).find(place.name, place.archive)
        return _OPENERS[place.suffix](source, member)

    def _index(self, source: ArchiveSource, suffix: str) -> MemberIndex:
        return self._indexes.get(source, lambda: _INDEX_READERS[suffix](source))


def _split(uri: str) -> MemberUri:
    place = split_member(uri)
    assert place is not None
    return place
