"""A pool of model processes; each request goes to the least busy one."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from reelabel_engine.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Lifetime(ABC):
    """Starts on entry to a `with` block, and closes on exit."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            with suppress(Exception):  # in favour of the first error
                self.close()  # a part of it may have started, as some engines of a pool
            raise
        return self

    def __exit__(self, *_raised: object) -> None:
        """Close."""
        self.close()

    @abstractmethod
    def start(self) -> None:
        """Start; return at once."""

    @abstractmethod
    def close(self) -> None:
        """Close; idempotent."""


Member = TypeVar("Member", bound=Lifetime)
_Reply = TypeVar("_Reply")


class Pool(Lifetime, Generic[Member]):
    """Processes of one model; a context manager that shuts them all down. Thread-safe.

    Each request goes whole to the least busy one. One that cannot be loaded again is no longer used.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = tuple(members)
        self._busy = [0] * len(members)
        self._faults: dict[int, ModelError] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        for member in self._members:
            member.start()

    def close(self) -> None:
        for member in self._members:
            member.close()

    def _request(self, request: Callable[[Member], _Reply]) -> _Reply:
        while True:
            number = self._take_least_busy()
            try:
                return request(self._members[number])
            except ModelError as error:
                self._faults[number] = error
            finally:
                with self._lock:
                    self._busy[number] -= 1

    def _take_least_busy(self) -> int:
        with self._lock:
            usable = [number for number in range(len(self._members)) if number not in self._faults]
            if not usable:
                raise next(iter(self._faults.values()))
            number = min(usable, key=self._busy.__getitem__)
            self._busy[number] += 1
            return number
