"""What the reading of one pair of frames took, and why some took longer than others."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.cores import descendants

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.live.stream import Read
    from tasks.model.engine.process import EngineProcess

_NS_PER_MS = 1e6
_TICK_MS = 10.0  # of /proc/stat
_STOLEN = 8  # its column
_READ_AGAIN = 3  # times the usual tokens


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
        collections: File of when the engine's processes collected garbage; see `collecting_engine`.
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
