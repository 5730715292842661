"""How many requests may be in progress: others are refused at once, and told when to try again."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from flows.serve.metrics import request_begins, request_ends, request_refused
from flows.serve.refusals import GONE, RequestRefusedError
from reelabel.errors import ReelabelError

if TYPE_CHECKING:
    from collections.abc import Iterator

# The durations of so many requests are remembered, to say when a place may be free.
_REMEMBERED = 64
_MOST_RETRY_S = 60.0


class Admission:
    """Places for requests in progress; thread-safe."""

    def __init__(self, places: int) -> None:
        """Start with free places only.

        Args:
            places: Maximum requests in progress at the same time.
        """
        self.places = places
        self._taken = 0
        self._lock = threading.Lock()
        self._took_s: deque[float] = deque(maxlen=_REMEMBERED)

    @property
    def taken(self) -> int:
        """Number of requests in progress."""
        return self._taken

    @contextmanager
    def place(self, route: str) -> Iterator[None]:
        """Hold a place in the body of the `with` statement.

        Args:
            route: What is asked for, as in the metrics.

        Raises:
            RequestRefusedError: All are taken; the code is `busy`.
        """
        with self._lock:
            if self._taken >= self.places:
                request_refused(route)
                raise RequestRefusedError(
                    f"All {self.places} places are taken; try again after the seconds in Retry-After.",
                    code="busy",
                    status=HTTPStatus.TOO_MANY_REQUESTS,
                    retry_after_s=self._retry_after_s(),
                )
            self._taken += 1
        began_s, outcome = time.monotonic(), "answered"
        request_begins(route)
        try:
            yield
        except BaseException as error:
            outcome = (
                error.code
                if isinstance(error, ReelabelError)
                else "cancelled"
                if isinstance(error, GONE)
                else "internal"
            )
            raise
        finally:
            took_s = time.monotonic() - began_s
            request_ends(route, outcome, took_s)
            with self._lock:
                self._taken -= 1
                self._took_s.append(took_s)

    def _retry_after_s(self) -> float:
        """Return what a request usually takes, at least a second."""
        usual_s = sum(self._took_s) / len(self._took_s) if self._took_s else 1.0
        return min(_MOST_RETRY_S, max(1.0, usual_s))
