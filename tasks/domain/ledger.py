"""Where a run's wall time goes."""

from __future__ import annotations

import time
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_NOTHING: Mapping[Part, float] = MappingProxyType({})


class Part(StrEnum):
    """What a moment of a run was spent on, as its engine sees it.

    The engine is held from `LOAD` to `UNLOAD`; in between it answers, or waits for one of the others.
    """

    SETUP = "setup"
    LOAD = "engine start"
    ANSWER = "answer"
    FETCH = "fetch"
    DECODE = "decode"
    CACHE_WRITE = "cache write"
    CACHE_READ = "cache read"
    PREPROCESS = "preprocess"
    DATABASE = "database"
    SCHEDULE = "schedule"
    RESTART = "engine restart"
    UNLOAD = "engine end"
    AUDIT = "audit"


class TimeLedger:
    """Charges every moment since its making to one part, so that the parts add up to the whole.

    Belongs to one thread: the one that feeds the engine.
    """

    def __init__(self, clock_s: Callable[[], float] = time.perf_counter) -> None:
        """Begin now.

        Args:
            clock_s: Gives seconds, never fewer than before.
        """
        self._clock_s = clock_s
        self._charged_until_s = clock_s()
        self._spent_ms: dict[str, float] = {}

    @property
    def spent_ms(self) -> dict[str, float]:
        """Milliseconds by part, up to the last charge."""
        return dict(self._spent_ms)

    def charge(self, part: Part, known_ms: Mapping[Part, float] = _NOTHING) -> None:
        """Charge the time since the last charge.

        Args:
            part: Takes what `known_ms` leaves over.
            known_ms: Milliseconds of the work that was waited for. Work side by side may come to more
                than the time: it then shares all of it in proportion.
        """
        now_s = self._clock_s()
        elapsed_ms = (now_s - self._charged_until_s) * 1e3
        self._charged_until_s = now_s
        total_ms = sum(known_ms.values())
        scale = min(1.0, elapsed_ms / total_ms) if total_ms else 0.0
        for name, ms in known_ms.items():
            self._add(name, ms * scale)
        self._add(part, max(0.0, elapsed_ms - total_ms * scale))

    def _add(self, part: Part, ms: float) -> None:
        if ms:
            self._spent_ms[part.value] = self._spent_ms.get(part.value, 0.0) + ms
