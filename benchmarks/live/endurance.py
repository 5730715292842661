"""A long stream, replayed as fast as the model reads it, with a window that is evicted in halves."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.cores import descendants
from benchmarks.live.latency import warm_up
from benchmarks.live.stream import FPS, camera
from tasks.live.window import Window, WindowRule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks.live.stream import LiveSetup, OpenLive

_QUESTION_EVERY = 30  # pairs
_KIB = 1024
_NS_PER_MS = 1e6
_PARTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Endurance:
    """What a long stream cost.

    Attributes:
        stream_s: Length of the stream.
        replay_s: How long reading it took.
        evictions: How often the window was halved.
        most_frames: Most frames that a prompt had.
        arrival_ms: P50, P99 and the longest time until a pair was read.
        no_core_ms: Of the longest, how long one of the engine's threads was ready to run, and other processes had the
            cores.
        question_ms: The same until the first token of a question.
        memory_mib: Of the engine's processes, after each quarter of the stream.
    """

    stream_s: float
    replay_s: float
    evictions: int
    most_frames: int
    arrival_ms: tuple[float, float, float]
    no_core_ms: float
    question_ms: tuple[float, float, float]
    memory_mib: tuple[float, ...]


def measure_endurance(
    live: OpenLive, setup: LiveSetup, *, minutes: float, rule: WindowRule, on_minute: Callable[[str], None]
) -> Endurance:
    """Replay a stream of two frames a second; after each pair of the current prefix, the following one is read."""
    warm_up(live, setup)
    count = max(_PARTS, round(minutes * 60 * FPS / 2))
    window, session = Window(rule), live.open()
    processes = [pid := live.process.pid or 0, *descendants(pid)]
    arrivals, no_core, questions, memory = [], [], [], []
    evictions = most = 0
    began_s = time.perf_counter()
    for number, item in enumerate(islice(camera(setup, seed=1), count), 1):
        evictions += bool(window.add(item))
        most = max(most, 2 * len(window.current))
        before_ms = _no_core_ms(processes)
        arrivals.append(live.read(session, window.current).total_ms)
        no_core.append(max(ms - before_ms.get(thread, ms) for thread, ms in _no_core_ms(processes).items()))
        if window.following:
            live.read(session, window.following, following=True)
        if number % _QUESTION_EVERY == 0:
            questions.append(live.ask(session, window.current).first_token_ms)
            on_minute(f"{item.times_s[1] / 60:.0f} of {minutes:g} minutes")
        if number % (count // _PARTS) == 0:
            memory.append(_memory_mib(processes))
    live.model.forget(session)
    return Endurance(
        stream_s=count * 2 / FPS,
        replay_s=time.perf_counter() - began_s,
        evictions=evictions,
        most_frames=most,
        arrival_ms=_spread(arrivals),
        no_core_ms=no_core[int(np.argmax(arrivals))],
        question_ms=_spread(questions),
        memory_mib=tuple(memory),
    )


def _spread(values: list[float]) -> tuple[float, float, float]:
    if not values:
        return 0.0, 0.0, 0.0
    p50, p99, most = np.percentile(values, [50, 99, 100]).tolist()
    return p50, p99, most


def _no_core_ms(processes: Iterable[int]) -> dict[int, float]:
    """Return, for each thread of some processes, how long it was ready to run without a core since it began."""
    waited = {}
    for process in processes:
        for thread in Path(f"/proc/{process}/task").iterdir():
            with suppress(OSError):  # it has ended
                waited[int(thread.name)] = int((thread / "schedstat").read_text().split()[1]) / _NS_PER_MS
    return waited


def _memory_mib(processes: Iterable[int]) -> float:
    """Sum the proportional memory of processes."""
    total = 0
    for each in processes:
        lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / _KIB
