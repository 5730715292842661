"""Replays a long stream as fast as the model prefills it, with eviction in halves."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.cores import descendants
from benchmarks.harness import MIB, proportional_bytes
from benchmarks.live.latency import warm_up
from benchmarks.live.stream import FPS, camera
from tasks.live.window import Window, WindowRule

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.live.stream import LiveSetup, OpenLive

_QUESTION_EVERY = 30  # pairs
_PARTS = 4


def measure_endurance(
    live: OpenLive,
    setup: LiveSetup,
    *,
    minutes: float,
    rule: WindowRule,
    on_minute: Callable[[str], None],
) -> dict[str, Any]:
    """Replay a stream of two frames a second; after each pair of the current prefix, the next one is read.

    Returns:
        Seconds of the stream and of its replay; how often the window was halved, and the most frames of a prompt; P50,
        P99 and the longest time until a pair was read, and until the first token of a question; and MiB of the engine's
        processes after each quarter.
    """
    warm_up(live, setup)
    count = max(_PARTS, round(minutes * 60 * FPS / 2))
    window, session, pid = Window(rule), live.open(), live.process.pid or 0
    processes = (pid, *descendants(pid))
    arrivals, questions, memory, evictions, most = [], [], [], 0, 0
    began_s = time.perf_counter()
    for number, item in enumerate(islice(camera(setup, seed=1), count), 1):
        evictions += bool(window.add(item))
        most = max(most, 2 * len(window.current))
        arrivals.append(live.read(session, window.current).total_ms)
        if window.next:
            live.read(session, window.current, window.next)
        if number % _QUESTION_EVERY == 0:
            questions.append(live.ask(session, window.current).total_ms)
            on_minute(f"{item.times_s[1] / 60:.0f} of {minutes:g} minutes")
        if number % (count // _PARTS) == 0:
            memory.append(sum(map(proportional_bytes, processes)) / MIB)
    live.model.close_session(session)
    replay_s = time.perf_counter() - began_s
    return {
        "stream_s": count * 2 / FPS,
        "replay_s": replay_s,
        "evictions": evictions,
        "most_frames": most,
        "arrival_ms": _spread(arrivals),
        "question_ms": _spread(questions),
        "memory_mib": memory,
    }


def _spread(values: list[float]) -> tuple[float, float, float]:
    if not values:
        return 0.0, 0.0, 0.0
    p50, p99, most = np.percentile(values, [50, 99, 100]).tolist()
    return p50, p99, most
