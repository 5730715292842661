"""Members of archives, by URI, wherever the archive is."""

from __future__ import annotations

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
from reelabel.sources.members import VERSION_MARK, MemberSource, SavedIndexes, decode_members, encode_members
from reelabel.sources.object_info import MemberUri, ObjectInfo, changed, is_read_by_fsspec, redact_uri, split_member
from reelabel.sources.parquet import PARQUET_SUFFIX, ParquetRows
from reelabel.sources.source import Objects, Source, StoredSource
from reelabel.sources.tar import open_tar_member, read_tar
from reelabel.sources.zip import open_zip_member, read_zip

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reelabel.sources.members import Content, IndexStore, MemberIndex

_INDEX_READERS = {".tar": read_tar, ".zip": read_zip}
_OPENERS = {".tar": open_tar_member, ".zip": open_zip_member}
_KEPT_INDEXES = 32


class RemoteArchive(StoredSource):
    def read(self, start: int, size: int) -> bytes:
        try:
            return super().read(start, size)
        except RangesIgnoredError:
            raise VideoRefusedError(
                f"The server of {redact_uri(self.info.uri)} does not send ranges, so no member can be read; "
                "copy the archive to a folder, or to a store that does."
            ) from None


class Archives:
    """Reads members of archives. Thread-safe; pickled without its caches."""

    def __init__(self, objects: Objects, store: IndexStore | None) -> None:
        self._objects = objects
        self._store = store
        self._indexes = SavedIndexes(store, encode=encode_members, decode=decode_members, keep=_KEPT_INDEXES)
        self._rows = ParquetRows(store)

    def __reduce__(self) -> tuple[type[Self], tuple[Objects, IndexStore | None]]:
        return type(self), (self._objects, self._store)

    def open(self, archive: Source, uri: str) -> MemberSource:
        """Find a member of an open archive.

        Raises MemberMissingError, ArchiveUnreadableError if the archive or the member cannot be read, and
        VideoRefusedError if the URI does not name a member.
        """
        return MemberSource(archive, uri, self._content(archive, _split(uri)))

    def open_remote(self, uri: str, fingerprint: str | None = None) -> MemberSource:
        """Find a member of an archive on S3 or the web, of the version that its fingerprint names."""
        version, mark, _ = (fingerprint or "").rpartition(VERSION_MARK)
        if fingerprint is not None and not mark:  # of no member of an archive
            raise changed(uri)
        return self.open(self._archive(_split(uri).archive, version or None), uri)

    def stat_many(self, uris: Iterable[str]) -> dict[str, ObjectInfo]:
        """Return the metadata of members, with one request an archive; those that fail are left out, as are rows."""
        found: dict[str, ObjectInfo] = {}
        places = sorted((_split(uri).archive, uri) for uri in uris if _split(uri).suffix in _OPENERS)
        for archive, members in groupby(places, key=lambda place: place[0]):
            try:
                source = self._archive(archive)
            except (ObjectError, ConfigurationError):
                continue
            for _, uri in members:
                try:
                    found[uri] = self.open(source, uri).info
                except (ObjectError, VideoError, ConfigurationError):
                    continue
        return found

    def index_of(self, archive: str) -> MemberIndex:
        return self._index(self._archive(archive), MemberUri(archive, "").suffix)

    def _archive(self, uri: str, fingerprint: str | None = None) -> RemoteArchive:
        if fingerprint is None or is_read_by_fsspec(uri):  # whose reads do not check the version
            info = self._objects.stat(uri)
            info.require(fingerprint=fingerprint, max_bytes=None)
        else:
            info = ObjectInfo(uri=uri, size_bytes=int(fingerprint.split(":", 2)[1]), fingerprint=fingerprint)
        return RemoteArchive(self._objects, info)

    def _content(self, archive: Source, place: MemberUri) -> Content:
        if place.suffix == PARQUET_SUFFIX:
            return self._rows.open(archive, place)
        if place.suffix not in _OPENERS:
            raise ArchiveUnreadableError(
                f"{redact_uri(place.archive)} is compressed as a whole, so its members cannot be located; "
                "decompress it to a .tar, or repack it as a .zip."
            )
        if not place.name:
            raise VideoRefusedError(f"{redact_uri(place.archive)}# does not name a member; write ARCHIVE#MEMBER.")
        member = self._index(archive, place.suffix).find(place.name, place.archive)
        return _OPENERS[place.suffix](archive, member)

    def _index(self, archive: Source, suffix: str) -> MemberIndex:
        return self._indexes.get(archive, lambda: _INDEX_READERS[suffix](archive))


def _split(uri: str) -> MemberUri:
    place = split_member(uri)
    assert place is not None
    return place
