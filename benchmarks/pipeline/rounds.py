"""Ways taken in turn, round after round, and what comes out."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.pipeline.busy import Busy
    from benchmarks.pipeline.timing import Timing, Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One way, over all its passes.

    Attributes:
        timings: One per round.
        jobs_per_s: Median.
        engine_busy: Median share of the time in which the engine's processor computed; None where unknown.
        host_busy: The same of the other cores.
    """

    way: str
    timings: tuple[Timing, ...] = field(repr=False)
    jobs_per_s: float
    engine_busy: float | None
    host_busy: float | None

    @classmethod
    def of(cls, way: str, timings: Sequence[Timing], busy: Busy) -> Row:
        """Sum passes up."""
        spans = [(timing.began_s, timing.ended_s) for timing in timings]
        return cls(
            way=way,
            timings=tuple(timings),
            jobs_per_s=median(timing.jobs_per_s for timing in timings),
            engine_busy=_median([busy.engine(*span) for span in spans]),
            host_busy=_median([busy.host(*span) for span in spans]),
        )


def measure(
    ways: Mapping[str, Way], *, rounds: int, busy: Busy, say: Callable[[str], None], together: bool = True
) -> list[Row]:
    """Take every way once a round.

    Args:
        ways: By name.
        rounds: How many; medians are given.
        busy: Looks at the processors meanwhile.
        say: Told what is going on.
        together: All models are loaded at once, and ways take turns within a round, so that a slow moment
            falls on all. Otherwise each way makes all its passes alone, where memory holds one model.
    """
    if not together:
        return [row for name, way in ways.items() for row in measure({name: way}, rounds=rounds, busy=busy, say=say)]
    timings: dict[str, list[Timing]] = {name: [] for name in ways}
    with ExitStack() as stack:
        for name, way in ways.items():
            say(f"{name}: loading")
            stack.callback(way.close)
            way.load()
        for number in range(1, rounds + 1):
            for name, way in ways.items():
                say(f"{name}: round {number} of {rounds}")
                timings[name].append(way.run(number))
    return [Row.of(name, passes, busy) for name, passes in timings.items()]


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
