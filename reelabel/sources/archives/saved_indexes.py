"""Indexes of archives: made once for all threads, kept while among the last ones used, and saved for other runs."""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import Future
from copy import copy
from threading import Lock
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from reelabel.errors import ReelabelError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from reelabel.sources.archives.members import ArchiveSource


_T = TypeVar("_T")


class SingleFlightCache(Generic[_T]):
    """Results by key. Threads that want the same one wait for the first; a failure is not kept. Thread-safe.

    Those who wait share an error of ours; after one that nobody has foreseen, each tries for itself.
    """

    def __init__(self, keep: int) -> None:
        """Keep this many results."""
        self._keep = keep
        self._results: OrderedDict[Hashable, Future[_T]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return the result of `make` for a key.

        Raises:
            Exception: Whatever `make` raises.
        """
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
        self._memo = SingleFlightCache[_T](keep)

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
