"""Attribute wall time to concurrent requests."""

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
    """One request's share of the time; all shares sum to the time with any request in flight.

    Attributes:
        ms: Milliseconds; set once the request has ended.
    """

    ms: float = 0.0


class SharedClock:
    """Divides each moment equally among the requests in flight."""

    def __init__(self) -> None:
        """Start with no request."""
        self._lock = threading.Lock()
        self._in_flight = 0
        self._since_s = 0.0
        self._each_s = 0.0  # the share of a request in flight since the start
        self.busy_ms = 0.0

    @contextmanager
    def share(self) -> Iterator[Share]:
        """Count a request as in flight during the `with` block."""
        share = Share()
        began_s = self._change(+1)
        try:
            yield share
        finally:
            share.ms = (self._change(-1) - began_s) * 1e3

    def _change(self, by: int) -> float:
        with self._lock:
            now_s = time.perf_counter()
            if self._in_flight:
                self._each_s += (now_s - self._since_s) / self._in_flight
                self.busy_ms += (now_s - self._since_s) * 1e3
            self._since_s = now_s
            self._in_flight += by
            return self._each_s
