"""Time shared among requests that are under way at once."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True)
class Share:
    """One request's part of the time; all shares add up to the time in which any was under way.

    Attributes:
        ms: Milliseconds; known once the request has ended.
    """

    ms: float = 0.0


class SharedClock:
    """Divides each moment equally among the requests that are under way in it."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._under_way = 0
        self._since_s = 0.0
        self._each_s = 0.0  # what a request that is under way from the beginning would have
        self.busy_ms = 0.0

    @contextmanager
    def share(self) -> Iterator[Share]:
        """Count a request as under way."""
        share = Share()
        began_s = self._change(+1)
        try:
            yield share
        finally:
            share.ms = (self._change(-1) - began_s) * 1e3

    def _change(self, by: int) -> float:
        with self._lock:
            now_s = time.perf_counter()
            if self._under_way:
                self._each_s += (now_s - self._since_s) / self._under_way
                self.busy_ms += (now_s - self._since_s) * 1e3
            self._since_s = now_s
            self._under_way += by
            return self._each_s
