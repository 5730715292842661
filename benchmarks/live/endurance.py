"""A long stream, replayed as fast as the model reads it, and why some pairs of frames took longer than others.

The window is evicted in halves.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.cores import descendants
from benchmarks.harness import MIB
from benchmarks.live.latency import warm_up
from benchmarks.live.stream import FPS, camera
from tasks.live.window import Window, WindowRule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from benchmarks.live.stream import LiveSetup, OpenLive, Read
    from tasks.model.engine.process import EngineProcess

_NS_PER_MS = 1e6
_TICK_MS = 10.0  # of /proc/stat
_STOLEN = 8  # its column
_READ_AGAIN = 3  # times the usual tokens
_QUESTION_EVERY = 30  # pairs
_PARTS = 4
_SHOWN = 5
_SLOW = 3  # times the median


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A pair that was read. Waiting for a core and stolen time are sums over threads and cores that may overlap.

    Attributes:
        at_s: Its time in the stream.
        began_s: When it arrived, by the monotonic clock.
        total_ms: Until it was read.
        is_evicting: Whether the window was halved by it.
        computed_tokens: Tokens of the prompt that were not in the cache.
        step_ms: Of the total, the steps of the engine's loop.
        core_ms: How long the thread of that loop had a core.
        no_core_ms: How long one of the engine's threads was ready to run, and had none; of the one that waited most.
        stolen_ms: How long the host gave this machine's cores to other machines.
        garbage_ms: How long the engine's processes collected garbage.
        cause: What took most of what it took longer than the median; empty until `explain`.
    """

    at_s: float
    began_s: float
    total_ms: float
    is_evicting: bool
    computed_tokens: int
    step_ms: float
    core_ms: float
    no_core_ms: float
    stolen_ms: float
    garbage_ms: float = 0.0
    cause: str = ""


class _Thread(NamedTuple):
    core_ms: float
    no_core_ms: float


class Clocks:
    """The kernel's clocks, and the engine's, around one arrival after the other.

    Attributes:
        processes: Those of the engine.
    """

    def __init__(self, engine: EngineProcess) -> None:
        """Find the processes of a loaded engine."""
        self._pid = engine.pid or 0
        self.processes = (self._pid, *descendants(self._pid))
        self._engine = engine
        self.start()

    def start(self) -> None:
        """Note that a pair arrives."""
        self._threads, self._stolen_ms = _threads(self.processes), _stolen_ms()
        self._step_ms, self._began_s = self._engine.times.busy_ms, time.monotonic()

    def stop(self, read: Read, *, at_s: float, is_evicting: bool) -> Arrival:
        """Note that the pair was read."""
        spent = {
            thread: _Thread(now.core_ms - before.core_ms, now.no_core_ms - before.no_core_ms)
            for thread, now in _threads(self.processes).items()
            if (before := self._threads.get(thread))
        }
        return Arrival(
            at_s=at_s,
            began_s=self._began_s,
            total_ms=read.total_ms,
            is_evicting=is_evicting,
            computed_tokens=read.prompt_tokens - read.cached_tokens,
            step_ms=self._engine.times.busy_ms - self._step_ms,
            core_ms=spent[self._pid].core_ms,
            no_core_ms=max(each.no_core_ms for each in spent.values()),
            stolen_ms=_stolen_ms() - self._stolen_ms,
        )


def explain(arrivals: Sequence[Arrival], collections: Path | None) -> list[Arrival]:
    """Say what took the time of each.

    Args:
        arrivals: At least one.
        collections: File of when the engine's processes collected garbage; see `watched_engine`.
    """
    usual_ms = median(each.total_ms for each in arrivals)
    usual_tokens = median(each.computed_tokens for each in arrivals)
    lines = collections.read_text().splitlines() if collections and collections.exists() else []
    collected = [(float(began), float(ended)) for began, ended in map(str.split, lines)]
    explained = []
    for each in arrivals:
        ended_s = each.began_s + each.total_ms / 1e3
        overlaps_s = (min(ended, ended_s) - max(began, each.began_s) for began, ended in collected)
        found = replace(each, garbage_ms=1e3 * sum(max(0.0, overlap_s) for overlap_s in overlaps_s))
        explained.append(replace(found, cause=_cause(found, usual_ms=usual_ms, usual_tokens=usual_tokens)))
    return explained


def _cause(arrival: Arrival, *, usual_ms: float, usual_tokens: float) -> str:
    if arrival.computed_tokens > _READ_AGAIN * usual_tokens:
        return "read again"
    parts = {
        "no core": arrival.no_core_ms,
        "other machines": arrival.stolen_ms,
        "garbage collection": arrival.garbage_ms,
    }
    cause = max(parts, key=parts.__getitem__)
    if parts[cause] >= (arrival.total_ms - usual_ms) / 2:
        return cause
    return "eviction" if arrival.is_evicting else "other"


def _threads(processes: Iterable[int]) -> dict[int, _Thread]:
    """Return, for each thread of some processes, how long it had a core, and was ready without one, since it began."""
    found = {}
    for process in processes:
        for thread in Path(f"/proc/{process}/task").iterdir():
            with suppress(OSError):  # it has ended
                core_ns, no_core_ns, _ = map(int, (thread / "schedstat").read_text().split())
                found[int(thread.name)] = _Thread(core_ns / _NS_PER_MS, no_core_ns / _NS_PER_MS)
    return found


def _stolen_ms() -> float:
    cores, *_ = Path("/proc/stat").read_text().splitlines()
    return int(cores.split()[_STOLEN]) * _TICK_MS


def measure_endurance(
    live: OpenLive,
    setup: LiveSetup,
    *,
    minutes: float,
    rule: WindowRule,
    collections: Path | None = None,
    on_minute: Callable[[str], None],
) -> dict[str, Any]:
    """Replay a stream of two frames a second; after each pair of the current prefix, the next one is read.

    Returns:
        Seconds of the stream and of its replay; how often the window was halved, and the most frames of a prompt; P50,
        P99 and the longest time until a pair was read, and until the first token of a question; the longest arrivals;
        how many arrivals took more than three times the median, by their cause; and MiB of the engine's processes after
        each quarter.
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
        if window.next:
            live.read(session, window.current, window.next)
        if number % _QUESTION_EVERY == 0:
            questions.append(live.ask(session, window.current).first_token_ms)
            on_minute(f"{item.times_s[1] / 60:.0f} of {minutes:g} minutes")
        if number % (count // _PARTS) == 0:
            memory.append(_memory_mib(clocks.processes))
    live.model.forget(session)
    replay_s = time.perf_counter() - began_s
    by_length = sorted(explain(arrivals, collections), key=lambda each: each.total_ms, reverse=True)
    arrival_ms = _spread([each.total_ms for each in arrivals])
    return {
        "stream_s": count * 2 / FPS,
        "replay_s": replay_s,
        "evictions": sum(each.is_evicting for each in arrivals),
        "most_frames": most,
        "arrival_ms": arrival_ms,
        "question_ms": _spread(questions),
        "longest": [asdict(each) for each in by_length[:_SHOWN]],
        "slow": dict(Counter(each.cause for each in by_length if each.total_ms > _SLOW * arrival_ms[0])),
        "memory_mib": memory,
    }


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
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return total / MIB
