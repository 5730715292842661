"""A run's wall-clock time by phase, its cost, and its bottleneck."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from math import fsum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class RunPhase(StrEnum):
    """What the wall-clock time of a run is spent on, from the engine's point of view.

    The engine is held from `LOAD` to `UNLOAD`; in between, it answers, or waits for one of the other phases. While
    remote workers do the work (`ELSEWHERE`), the run holds no engine.
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


# If several phases are active, time is charged to the first of these, the closest to the engine.
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
    """Charges each moment since its creation to one phase; the phases sum to the wall-clock time. Thread-safe."""

    def __init__(self, clock_s: Callable[[], float] = time.perf_counter) -> None:
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._charged_until_s = clock_s()
        self._active: Counter[RunPhase] = Counter()
        self._charged_ms: defaultdict[RunPhase, float] = defaultdict(float)
        self._components: dict[RunPhase, dict[RunPhase, float]] = {}
        self._lap_ms: dict[str, float] = {}

    @contextmanager
    def doing(self, part: RunPhase) -> Iterator[None]:
        """Mark a phase as active during the `with` block; while none is, time is charged to `RunPhase.SCHEDULE`."""
        self._change(part, 1)
        try:
            yield
        finally:
            self._change(part, -1)

    def split(self, part: RunPhase, components_ms: Mapping[RunPhase, float]) -> None:
        """Divide a phase's time among other phases, in proportion to their work so far, parallel or not."""
        with self._lock:
            self._components[part] = dict(components_ms)

    @property
    def spent_ms(self) -> dict[str, float]:
        """Milliseconds by phase until now."""
        with self._lock:
            return self._spent_ms()

    def lap(self) -> dict[str, float]:
        """Return milliseconds by phase since the last lap; all laps sum to `spent_ms`.

        A value is negative where `split` has moved time from one phase to another.
        """
        with self._lock:
            before_ms, self._lap_ms = self._lap_ms, self._spent_ms()
            names = before_ms.keys() | self._lap_ms.keys()
            return {name: self._lap_ms.get(name, 0.0) - before_ms.get(name, 0.0) for name in names}

    def uncharge(self, lap_ms: Mapping[str, float]) -> None:
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
                spent_ms[component.value] += ms * (share / (total_ms or 1.0))
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


_LOADED = frozenset(RunPhase) - {RunPhase.SETUP, RunPhase.ELSEWHERE, RunPhase.LOAD, RunPhase.UNLOAD, RunPhase.AUDIT}
_PREPARING = (RunPhase.FETCH, RunPhase.DECODE, RunPhase.CACHE_WRITE)
HELD = _LOADED | {RunPhase.LOAD, RunPhase.UNLOAD}


def tallied(name: str, amounts: Mapping[str, float]) -> dict[str, float]:
    """Return amounts as entries of a tally, such as `stage_ms.decode`; `part_of_tally` reverses it."""
    return {f"{name}.{key}": amount for key, amount in amounts.items()}


def part_of_tally(tally: Mapping[str, float], name: str) -> dict[str, float]:
    return {key.removeprefix(f"{name}."): amount for key, amount in tally.items() if key.startswith(f"{name}.")}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """Time, devices and tokens of one run.

    Attributes:
        wall_ms: Milliseconds by `RunPhase`, which sum to the run's wall-clock time; the mean over engines.
        engines: Number of engine processes.
        gpus: GPUs that the engines held; 0 on CPUs.
        prompt_tokens: Tokens of all prompts, including videos.
        cached_tokens: Prompt tokens served from the prefix cache.
        stage_ms: Milliseconds of work by stage, summed over processes, with the whole start of the engine, of which
            `wall_ms` has only what the run waited for.
    """

    jobs: int
    wall_ms: dict[str, float]
    engines: int = 1
    gpus: int
    prompt_tokens: int
    cached_tokens: int
    stage_ms: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of_run(cls, row: Mapping[Any, Any]) -> RunCost | None:
        """Read the cost of a run from its row; None before its end, or if it was not measured."""
        if row["wall_ms"] is None:
            return None
        names = ("wall_ms", "engines", "gpus", "prompt_tokens", "cached_tokens", "stage_ms")
        return cls(jobs=row["jobs_labelled"] + row["jobs_failed"], **{name: row[name] for name in names})

    @property
    def loaded_ms(self) -> float:
        """Milliseconds for which the engine was loaded, answering or waiting."""
        return fsum(self.wall_ms.get(part, 0.0) for part in _LOADED)  # exact in any order: that of a set varies

    @property
    def held_ms(self) -> float:
        """Milliseconds for which the engine was held, from its start to its end."""
        return fsum([*(self.wall_ms.get(part, 0.0) for part in HELD), self.ahead_ms])

    @property
    def ahead_ms(self) -> float:
        """Milliseconds of the engine's start for which the run did not wait."""
        return max(0.0, self.stage_ms.get(RunPhase.LOAD, 0.0) - self.wall_ms.get(RunPhase.LOAD, 0.0))

    @property
    def jobs_per_s(self) -> float:
        """Jobs per second of the loaded engine; its start is excluded, as it does not depend on the number of jobs."""
        return self.jobs * 1e3 / self.loaded_ms if self.loaded_ms else 0.0

    @property
    def jobs_per_hour_held(self) -> float:
        """Jobs per GPU-hour held, or per engine-hour on CPUs."""
        return self.jobs * 3.6e6 / (self.held_ms * max(self.engines, self.gpus)) if self.held_ms else 0.0

    @property
    def gpu_ms(self) -> float:
        """GPU-milliseconds held."""
        return self.held_ms * self.gpus

    @property
    def cpu_hours(self) -> float:
        """Hours of the processes that prepared videos, and of engines without a GPU."""
        engines_ms = 0.0 if self.gpus else self.held_ms * self.engines
        return fsum([engines_ms, *(self.stage_ms.get(stage, 0.0) for stage in _PREPARING)]) / 3.6e6

    @property
    def busy(self) -> float:
        return self._share(RunPhase.ANSWER)

    @property
    def waits(self) -> list[tuple[RunPhase, float]]:
        """Fractions of the loaded time by phase that the engine waited for, the longest first."""
        shares = [(part, self._share(part)) for part in RunPhase if part in _LOADED and part is not RunPhase.ANSWER]
        return sorted((wait for wait in shares if wait[1]), key=lambda wait: -wait[1])

    def _share(self, part: RunPhase) -> float:
        return self.wall_ms.get(part, 0.0) / self.loaded_ms if self.loaded_ms else 0.0


_SMALL_PRICE = 0.1


def format_price(value: float) -> str:
    """Format a price, or an amount that has one, with two decimals, or with two digits if it is small."""
    return f"{value:,.2f}" if value >= _SMALL_PRICE else f"{value:.2g}"


_LONG_LOAD = 0.5
_MUCH_WAITING = 0.1  # the most that an engine could gain by never waiting
_WHOLE_CORE = 0.9  # with the GIL, a process uses hardly more than one core
_INPUT = {RunPhase.FETCH, RunPhase.DECODE, RunPhase.CACHE_WRITE, RunPhase.CACHE_READ}

_ADVICE = {
    RunPhase.FETCH: ("fetching", "raise extract.processes (fetching needs little CPU), or move the videos closer"),
    RunPhase.EMBED: ("embedding frames", "lower describe.frames_per_chunk, or give the image-text model a GPU"),
    RunPhase.CACHE_WRITE: ("writing frame files", "choose a cheaper store.encoding, or move the store closer"),
    RunPhase.CACHE_READ: ("reading frame files", "move the store closer, or choose another store.encoding"),
    RunPhase.PREPROCESS: ("preprocessing", "lower sampling.num_frames or sampling.max_pixels"),
    RunPhase.DATABASE: ("the database", "move it closer, or raise shard.target_jobs"),
    RunPhase.SCHEDULE: ("the work between shards", "raise shard.target_jobs"),
    RunPhase.RESTART: ("its own restarts", "check its log for the cause"),
}


def describe_bottleneck(
    cost: RunCost, *, processes: int, cores: int, own_cores: float = 0.0, frames: str = "sampling.num_frames"
) -> str:
    """Return a sentence on what to change first; empty if the run held no engine.

    Args:
        cost: Cost of the run.
        processes: Number of decoding processes.
        cores: CPU cores that the run may use.
        own_cores: Average number of cores used by the run's own process, without decoders and engine.
        frames: Name of the setting for the number of frames.
    """
    if not cost.loaded_ms:
        return ""
    load = (cost.wall_ms.get(RunPhase.LOAD, 0.0) + cost.ahead_ms) / cost.held_ms
    if load > _LONG_LOAD:
        return f"Loading the model took {load:.0%} of the time the engine was held: put more jobs into one run."
    waited = 1.0 - cost.busy
    if waited < _MUCH_WAITING:
        device = "a larger or faster GPU" if cost.gpus else "a GPU"
        fewer = f"fewer frames ({frames})"
        return f"The engine was busy {cost.busy:.0%} of the time: {device}, or {fewer}, would help."
    part, share = cost.waits[0]
    what, advice = ("decoding", _more_decoding(processes, cores)) if part is RunPhase.DECODE else _ADVICE[part]
    if part in _INPUT and own_cores >= _WHOLE_CORE:
        advice = (
            "the run's own process, which dispatches the videos, is saturated: "
            "extract in several flows (run.executor, run.extract_flows)"
        )
    return f"The engine waited {waited:.0%} of the time, {share:.0%} for {what}: {advice}."


def _more_decoding(processes: int, cores: int) -> str:
    if processes < cores:
        return f"raise extract.processes from {processes} to {cores}, the number of cores"
    return "give the run more cores, or run extraction on more machines"
