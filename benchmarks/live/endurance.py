"""A long stream, replayed as fast as the model reads it, with a window that is evicted in halves."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.live.arrival import Clocks, explain
from benchmarks.live.latency import warm_up
from benchmarks.live.stream import FPS, camera
from tasks.live.window import Window, WindowRule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks.live.arrival import Arrival
    from benchmarks.live.stream import LiveSetup, OpenLive

_QUESTION_EVERY = 30  # pairs
_KIB = 1024
_PARTS = 4
_SHOWN = 5
_SLOW = 3  # times the median


@dataclass(frozen=True, slots=True, kw_only=True)
class Endurance:
    """What a long stream cost.

    Attributes:
        stream_s: Length of the stream.
        replay_s: How long reading it took.
        evictions: How often the window was halved.
        most_frames: Most frames that a prompt had.
        arrival_ms: P50, P99 and the longest time until a pair was read.
        question_ms: The same until the first token of a question.
        longest: The longest arrivals, the longest first.
        slow: How many arrivals took more than three times the median, by their cause.
        memory_mib: Of the engine's processes, after each quarter of the stream.
    """

    stream_s: float
    replay_s: float
    evictions: int
    most_frames: int
    arrival_ms: tuple[float, float, float]
    question_ms: tuple[float, float, float]
    longest: tuple[Arrival, ...]
    slow: dict[str, int]
    memory_mib: tuple[float, ...]


def measure_endurance(
    live: OpenLive,
    setup: LiveSetup,
    *,
    minutes: float,
    rule: WindowRule,
    collections: Path | None = None,
    on_minute: Callable[[str], None],
) -> Endurance:
    """Replay a stream of two frames a second; after each pair of the current prefix, the following one is read.

    Args:
        live: The engine.
        setup: The model and its frames.
        minutes: Length of the stream.
        rule: Its window.
        collections: File of when the engine's processes have collected garbage; see `collecting_engine`.
        on_minute: Is told how far it is.
    """
    warm_up(live, setup)
    count = max(_PARTS, round(minutes * 60 * FPS / 2))
    window, session, clocks = Window(rule), live.open(), Clocks(live.process)
    arrivals: list[Arrival] = []
    questions, memory, most = [], [], 0
    began_s = time.perf_counter()
    for number, item in enumerate(islice(camera(setup, seed=1), count), 1):
        is_evicting = bool(window.add(item))
        most = max(most, 2 * len(window.current))
        clocks.start()
        read = live.read(session, window.current)
        arrivals.append(clocks.stop(read, at_s=item.times_s[1], is_evicting=is_evicting))
        if window.following:
            live.read(session, window.current, window.following)
        if number % _QUESTION_EVERY == 0:
            questions.append(live.ask(session, window.current).first_token_ms)
            on_minute(f"{item.times_s[1] / 60:.0f} of {minutes:g} minutes")
        if number % (count // _PARTS) == 0:
            memory.append(_memory_mib(clocks.processes))
    live.model.forget(session)
    replay_s = time.perf_counter() - began_s
    by_length = sorted(explain(arrivals, collections), key=lambda each: each.total_ms, reverse=True)
    arrival_ms = _spread([each.total_ms for each in arrivals])
    return Endurance(
        stream_s=count * 2 / FPS,
        replay_s=replay_s,
        evictions=sum(each.is_evicting for each in arrivals),
        most_frames=most,
        arrival_ms=arrival_ms,
        question_ms=_spread(questions),
        longest=tuple(by_length[:_SHOWN]),
        slow=dict(Counter(each.cause for each in by_length if each.total_ms > _SLOW * arrival_ms[0])),
        memory_mib=tuple(memory),
    )


def _spread(values: list[float]) -> tuple[float, float, float]:
    if not values:
        return 0.0, 0.0, 0.0
    p50, p99, most = np.percentile(values, [50, 99, 100]).tolist()
    return p50, p99, most


def _memory_mib(processes: Iterable[int]) -> float:
    """Sum the proportional memory of processes."""
    total = 0
    for each in processes:
        lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / _KIB
