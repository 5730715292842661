"""What a file has of several videos, by key, and what was added since."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Value = TypeVar("Value")


@dataclass(slots=True)
class Kept(Generic[Value]):
    """What is kept of a shard's videos in one file. Thread-safe.

    Attributes:
        key: Key of the file.
        found: What the file had.
        size_of: Returns the size of a value.
        room: Maximum total that may be kept, in the same unit.
    """

    key: str
    found: dict[str, Value] = field(default_factory=dict, repr=False)
    size_of: Callable[[Value], int] = field(default=lambda _: 1, repr=False)
    room: int = 1 << 62
    _used: dict[str, Value] = field(default_factory=dict, init=False, repr=False)
    _used_size: int = field(default=0, init=False)
    _is_changed: bool = field(default=False, init=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def find(self, key: str) -> Value | None:
        """Return what is kept of a video, for as long as its version is asked for; None if nothing is."""
        value = self.found.get(key)
        if value is not None:
            self._use(key, value)
        return value

    def add(self, key: str, value: Value) -> None:
        """Keep what was found out about a video, if there is room."""
        if self._use(key, value):
            self._is_changed = True

    def changed(self) -> dict[str, Value] | None:
        """Return what the file should have instead: all that was asked for; None if it has that."""
        return self._used if self._is_changed else None

    def _use(self, key: str, value: Value) -> bool:
        size = self.size_of(value)
        with self._lock:
            if key in self._used or self._used_size + size > self.room:
                return False
            self._used[key] = value
            self._used_size += size
            return True
