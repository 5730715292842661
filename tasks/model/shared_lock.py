"""A lock that many may hold at once, or one alone."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class SharedLock:
    """A readers-writer lock, in which those that wait for exclusive use come first. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holders = 0
        self._exclusive = 0  # held or waited for

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._exclusive)
            self._holders += 1
        try:
            yield
        finally:
            self._release()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._changed:
            self._exclusive += 1
            self._changed.wait_for(lambda: not self._holders)
            self._holders += 1
        try:
            yield
        finally:
            self._release(exclusive=1)

    def _release(self, *, exclusive: int = 0) -> None:
        with self._changed:
            self._holders -= 1
            self._exclusive -= exclusive
            self._changed.notify_all()
