"""Where a run's wall time goes."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class RunPhase(StrEnum):
    """What the wall time of a run is spent on, from the engine's point of view.

    The engine is held from `LOAD` to `UNLOAD`; in between it answers, or waits for one of the others. While remote
    workers do the work (`ELSEWHERE`), the run holds no engine.
    """

    SETUP = "setup"
    ELSEWHERE = "work elsewhere"
    LOAD = "engine start"
    ANSWER = "answer"
    FETCH = "fetch"
    DECODE = "decode"
    EMBED = "embed"
    CACHE_WRITE = "cache write"
    CACHE_READ = "cache read"
    PREPROCESS = "preprocess"
    DATABASE = "database"
    SCHEDULE = "schedule"
    RESTART = "engine restart"
    UNLOAD = "engine end"
    AUDIT = "audit"


# When several are active at once, time is charged to the first of these, the closest to the engine.
_BY_PRIORITY = (
    RunPhase.LOAD,
    RunPhase.SETUP,
    RunPhase.ELSEWHERE,
    RunPhase.UNLOAD,
    RunPhase.AUDIT,
    RunPhase.ANSWER,
    RunPhase.CACHE_READ,
    RunPhase.DECODE,
    RunPhase.DATABASE,
)


class WallClockProfile:
    """Charges each moment since its creation to exactly one part, so that the parts sum to the wall time.

    Thread-safe.
    """

    def __init__(self, clock_s: Callable[[], float] = time.perf_counter) -> None:
        """Start the clock, which is monotonic and in seconds."""
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._charged_until_s = clock_s()
        self._active: Counter[RunPhase] = Counter()
        self._charged_ms: defaultdict[RunPhase, float] = defaultdict(float)
        self._components: dict[RunPhase, dict[RunPhase, float]] = {}
        self._lap_ms: dict[str, float] = {}

    @contextmanager
    def doing(self, part: RunPhase) -> Iterator[None]:
        """Mark a phase as active during the `with` block; with none active, time is charged to `RunPhase.SCHEDULE`."""
        self._change(part, 1)
        try:
            yield
        finally:
            self._change(part, -1)

    def split(self, part: RunPhase, made_of_ms: Mapping[RunPhase, float]) -> None:
        """Replace a part's time by that of its components, in proportion to their work so far, parallel or not."""
        with self._lock:
            self._components[part] = dict(made_of_ms)

    @property
    def spent_ms(self) -> dict[str, float]:
        """Milliseconds by part, until now."""
        with self._lock:
            return self._spent_ms()

    def lap(self) -> dict[str, float]:
        """Return milliseconds by part since the last lap; all laps sum to `spent_ms`.

        A value may be negative where `split` has moved time from one component to another.
        """
        with self._lock:
            before_ms, self._lap_ms = self._lap_ms, self._spent_ms()
            names = before_ms.keys() | self._lap_ms.keys()
            return {name: self._lap_ms.get(name, 0.0) - before_ms.get(name, 0.0) for name in names}

    def give_back(self, lap_ms: Mapping[str, float]) -> None:
        """Add a lap that could not be reported to the next one."""
        with self._lock:
            names = self._lap_ms.keys() | lap_ms.keys()
            self._lap_ms = {name: self._lap_ms.get(name, 0.0) - lap_ms.get(name, 0.0) for name in names}

    def _spent_ms(self) -> dict[str, float]:
        self._charge()
        spent_ms: defaultdict[str, float] = defaultdict(float)
        for part, ms in self._charged_ms.items():
            components_ms = self._components.get(part, {})
            total_ms = sum(components_ms.values())
            shares = components_ms if total_ms else {part: 1.0}
            for component, share in shares.items():
                spent_ms[component.value] += ms * share / (total_ms or 1.0)
        return {name: ms for name, ms in spent_ms.items() if ms}

    def _change(self, part: RunPhase, change: int) -> None:
        with self._lock:
            self._charge()
            self._active[part] += change

    def _charge(self) -> None:
        now_s = self._clock_s()
        part = next((part for part in _BY_PRIORITY if self._active[part]), RunPhase.SCHEDULE)
        self._charged_ms[part] += (now_s - self._charged_until_s) * 1e3
        self._charged_until_s = now_s
