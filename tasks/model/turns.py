"""Turns: most work side by side, but some of it alone."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Turns:
    """A readers-writer lock: what waits to be alone comes before what is shared. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._active = 0
        self._waiting = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting)
            self._active += 1
        try:
            yield
        finally:
            with self._changed:
                self._active -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not self._active)
            self._active += 1
        try:
            yield
        finally:
            with self._changed:
                self._waiting -= 1
                self._active -= 1
                self._changed.notify_all()
