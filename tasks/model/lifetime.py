"""What is started on entry to a `with` block, and closed on exit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Lifetime(ABC):
    """Starts on entry to a `with` block, and closes on exit."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
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
