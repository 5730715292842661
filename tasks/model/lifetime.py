"""What is started and closed, as a context manager."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Lifetime(ABC):
    """Starts where a `with` begins, and is closed where it ends."""

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        """Close."""
        self.close()

    @abstractmethod
    def start(self) -> None:
        """Begin; returns at once."""

    @abstractmethod
    def close(self) -> None:
        """End; safe to call again."""
