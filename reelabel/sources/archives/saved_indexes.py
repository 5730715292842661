"""Indexes of archives: made once, kept in memory, and saved where other runs find them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from reelabel.sources.archives.memo import Memo

if TYPE_CHECKING:
    from collections.abc import Callable

    from reelabel.sources.archives.ranged_file import ArchiveSource

_T = TypeVar("_T")


class IndexStore(Protocol):
    """Where indexes of archives are saved. Thread-safe."""

    def find_archive_index(self, *, uri: str, fingerprint: str, part: str) -> memoryview | None:
        """Return a saved index of a version of an archive; None if it is missing or must not be used."""

    def write_archive_index(self, data: bytes, *, uri: str, fingerprint: str, part: str) -> None:
        """Save one."""


class SavedIndexes(Generic[_T]):
    """Indexes of one kind. Thread-safe."""

    def __init__(
        self,
        store: IndexStore | None,
        *,
        encode: Callable[[_T], bytes],
        decode: Callable[[memoryview], _T],
        keep: int,
    ) -> None:
        """Keep this many in memory; `decode` raises ValueError."""
        self._store = store
        self._encode = encode
        self._decode = decode
        self._memo = Memo[_T](keep)

    def get(self, source: ArchiveSource, make: Callable[[], _T], *, part: str = "") -> _T:
        """Return the index of an archive, or of a part of it; `make` reads it if it is new."""
        key = source.info.uri, source.info.fingerprint, part

        def find_or_make() -> _T:
            found = self._find(source, part)
            return self._save(source, part, make()) if found is None else found

        return self._memo.get(key, find_or_make)

    def _find(self, source: ArchiveSource, part: str) -> _T | None:
        info = source.info
        if self._store is None:
            return None
        data = self._store.find_archive_index(uri=info.uri, fingerprint=info.fingerprint, part=part)
        try:
            return None if data is None else self._decode(data)
        except ValueError:
            return None

    def _save(self, source: ArchiveSource, part: str, index: _T) -> _T:
        if self._store is not None:
            info = source.info
            data = self._encode(index)
            self._store.write_archive_index(data, uri=info.uri, fingerprint=info.fingerprint, part=part)
        return index
