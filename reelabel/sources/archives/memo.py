"""Results that are made once for all threads, and kept as long as they are among the last ones used."""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import Future
from copy import copy
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from reelabel.errors import ReelabelError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_T = TypeVar("_T")


class Memo(Generic[_T]):
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
            self._make(key, mine, make)
        failure = known.exception()
        if failure is not None and known is not mine and not isinstance(failure, ReelabelError):
            return self.get(key, make)
        if failure is not None:
            raise copy(failure) from failure  # raised again, it would hold ever more frames of the stack
        return known.result()

    def _make(self, key: Hashable, future: Future[_T], make: Callable[[], _T]) -> None:
        try:
            future.set_result(make())
        except BaseException as error:  # noqa: BLE001 - raised again by `get`
            with self._lock:
                if self._results.get(key) is future:
                    del self._results[key]
            future.set_exception(error)
