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


class Part(StrEnum):
    """What a moment of a run was spent on, as its engine sees it.

    The engine is held from `LOAD` to `UNLOAD`; in between it answers, or waits for one of the others. None is held
    while others do the work (`ELSEWHERE`).
    """

    SETUP = "setup"
    ELSEWHERE = "work elsewhere"
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


# Several may go on at once: time is charged to the first of these, the nearest to the engine.
_NEAREST_FIRST = (
    Part.SETUP,
    Part.ELSEWHERE,
    Part.LOAD,
    Part.UNLOAD,
    Part.AUDIT,
    Part.ANSWER,
    Part.CACHE_READ,
    Part.DECODE,
    Part.DATABASE,
)


class TimeLedger:
    """Charges every moment since its making to one part, so that the parts add up to the whole.

    Safe to use from many threads.
    """

    def __init__(self, clock_s: Callable[[], float] = time.perf_counter) -> None:
        """Begin now.

        Args:
            clock_s: Gives seconds, never fewer than before.
        """
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._charged_until_s = clock_s()
        self._going_on: Counter[Part] = Counter()
        self._charged_ms: defaultdict[Part, float] = defaultdict(float)
        self._made_of: dict[Part, dict[Part, float]] = {}
        self._lap_ms: dict[str, float] = {}

    @contextmanager
    def doing(self, part: Part) -> Iterator[None]:
        """Say what goes on meanwhile; where nothing does, time is charged to `Part.SCHEDULE`."""
        self._note(part, 1)
        try:
            yield
        finally:
            self._note(part, -1)

    def split(self, part: Part, made_of_ms: Mapping[Part, float]) -> None:
        """Say what a part was made of so far; its time is shared out in proportion.

        Args:
            part: One that was gone through as a whole.
            made_of_ms: Milliseconds of the work in it, side by side or not.
        """
        with self._lock:
            self._made_of[part] = dict(made_of_ms)

    @property
    def spent_ms(self) -> dict[str, float]:
        """Milliseconds by part, up to now."""
        with self._lock:
            return self._spent_ms()

    def lap(self) -> dict[str, float]:
        """Milliseconds by part since the last lap, or since the beginning; all laps add up to what was spent.

        One alone may be negative in a part of which others now have more: see `split`.
        """
        with self._lock:
            before_ms, self._lap_ms = self._lap_ms, self._spent_ms()
            names = before_ms.keys() | self._lap_ms.keys()
            return {name: self._lap_ms.get(name, 0.0) - before_ms.get(name, 0.0) for name in names}

    def give_back(self, lap_ms: Mapping[str, float]) -> None:
        """Make a lap that could not be told part of the next one."""
        with self._lock:
            names = self._lap_ms.keys() | lap_ms.keys()
            self._lap_ms = {name: self._lap_ms.get(name, 0.0) - lap_ms.get(name, 0.0) for name in names}

    def _spent_ms(self) -> dict[str, float]:
        self._charge()
        spent_ms: defaultdict[str, float] = defaultdict(float)
        for part, ms in self._charged_ms.items():
            made_of_ms = self._made_of.get(part, {})
            total_ms = sum(made_of_ms.values())
            shares = made_of_ms if total_ms else {part: 1.0}
            for name, share in shares.items():
                spent_ms[name.value] += ms * share / (total_ms or 1.0)
        return {name: ms for name, ms in spent_ms.items() if ms}

    def _note(self, part: Part, change: int) -> None:
        with self._lock:
            self._charge()
            self._going_on[part] += change

    def _charge(self) -> None:
        now_s = self._clock_s()
        part = next((part for part in _NEAREST_FIRST if self._going_on[part]), Part.SCHEDULE)
        self._charged_ms[part] += (now_s - self._charged_until_s) * 1e3
        self._charged_until_s = now_s
