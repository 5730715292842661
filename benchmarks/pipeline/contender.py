"""Contenders: pipelines that answer the same jobs, measured in turn."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.pipeline.utilization import Utilization


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One pass of a contender over all jobs, after its model is loaded.

    Attributes:
        jobs: Jobs answered.
        began_s: When the first question could be asked, in seconds of the system's clock.
        ended_s: When the last answer arrived.
        labels: Index of each job's choice, in the workload's order; empty where nothing is answered.
        prompt_tokens: Tokens of all prompts.
        note: The contender's own account of where its time went.
    """

    jobs: int
    began_s: float
    ended_s: float
    labels: tuple[int, ...] = field(default=(), repr=False)
    prompt_tokens: int = 0
    note: str = ""

    @property
    def jobs_per_s(self) -> float:
        """Jobs per second."""
        return self.jobs / (self.ended_s - self.began_s)


class Contender(Protocol):
    """A pipeline to measure. `load` comes first, then any number of passes, then `close`."""

    def load(self) -> None:
        """Do what is not measured: start processes, load the model, warm up."""

    def run(self, number: int) -> Timing:
        """Answer all jobs; `number`, from 1, distinguishes passes, so that none profits from the cache of another."""

    def close(self) -> None:
        """Stop what was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContenderResult:
    """All passes of one contender.

    Attributes:
        timings: One per round.
        jobs_per_s: Median of the rounds.
        engine_utilization: Median share of the time in which the engine's processor computed; None where unknown.
        host_utilization: The same of the other cores.
    """

    contender: str
    timings: tuple[Timing, ...] = field(repr=False)
    jobs_per_s: float
    engine_utilization: float | None
    host_utilization: float | None

    @classmethod
    def of(cls, contender: str, timings: Sequence[Timing], utilization: Utilization) -> ContenderResult:
        """Summarize the passes."""
        spans = [(timing.began_s, timing.ended_s) for timing in timings]
        return cls(
            contender=contender,
            timings=tuple(timings),
            jobs_per_s=median(timing.jobs_per_s for timing in timings),
            engine_utilization=_median([utilization.engine(*span) for span in spans]),
            host_utilization=_median([utilization.host(*span) for span in spans]),
        )


def measure(
    contenders: Mapping[str, Contender],
    *,
    rounds: int,
    utilization: Utilization,
    on_progress: Callable[[str], None],
    together: bool = True,
) -> list[ContenderResult]:
    """Run every contender once per round.

    Args:
        contenders: Contenders by name.
        rounds: Measured rounds; medians are reported.
        utilization: Observes the processors meanwhile.
        on_progress: Called with a description of each step.
        together: Load all models at once and interleave the contenders within a round, so that a slow moment of the
            machine affects all of them. Otherwise run all passes of one contender before the next, for memory that
            holds one model only.
    """
    if not together:
        return [
            result
            for name, contender in contenders.items()
            for result in measure({name: contender}, rounds=rounds, utilization=utilization, on_progress=on_progress)
        ]
    timings: dict[str, list[Timing]] = {name: [] for name in contenders}
    with ExitStack() as stack:
        for name, contender in contenders.items():
            on_progress(f"{name}: loading")
            stack.callback(contender.close)
            contender.load()
        for number in range(1, rounds + 1):
            for name, contender in contenders.items():
                on_progress(f"{name}: round {number} of {rounds}")
                timings[name].append(contender.run(number))
    return [ContenderResult.of(name, passes, utilization) for name, passes in timings.items()]


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
