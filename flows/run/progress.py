"""Progress and cost of a run."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from flows.shard.report import set_time_spent
from infra.errors import BudgetReachedError
from infra.settings import CostSettings
from reelabel.cores import usable_cores
from reelabel.text import pluralize
from tasks.domain import RunCost, RunPhase, WallClockProfile
from tasks.domain.cost import describe_bottleneck, format_price, part_of_tally

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flows.shard.report import ShardReport
    from tasks.plans.plan import ShardSums

_COUNTS = (
    "jobs_labelled",
    "jobs_failed",
    "videos_extracted",
    "videos_cached",
    "videos_rewritten",
    "prompt_tokens",
    "cached_tokens",
    "shards_done",
)

_LOAD = f"stage_ms.{RunPhase.LOAD}"


@dataclass(slots=True, kw_only=True)
class Progress:
    """Sums over the shards that are done.

    Attributes:
        tally: The sum of their tallies; from remote workers, also `engines_ms`, the time of their engines by phase, and
            `gpu_ms`, the time for which they held GPUs.
        gpus: GPUs held by the engines, once loaded.
        max_cost: Cost at which the run ends.
        frames_setting: The setting that advice names for the number of frames.
    """

    processes: int
    tally: Counter[str] = field(default_factory=Counter)
    gpus: int = 0
    engines: int = 1
    profile: WallClockProfile = field(default_factory=WallClockProfile)
    prices: CostSettings = field(default_factory=CostSettings)
    max_cost: float = inf
    frames_setting: str = "sampling.num_frames"
    _clocks_at_load_s: tuple[float, float] | None = field(default=None, init=False, repr=False)  # CPU, wall

    @property
    def jobs_ended(self) -> int:
        """Jobs that have a label or a failure."""
        return self.tally["jobs_labelled"] + self.tally["jobs_failed"]

    def start_cpu_clock(self) -> None:
        """Start measuring the CPU time of this process, now that the engine is loaded."""
        self._clocks_at_load_s = time.process_time(), time.perf_counter()

    @property
    def has_loaded(self) -> bool:
        """Whether the start of the engine has been noted."""
        return _LOAD in self.tally

    def note_load(self, *, gpus: int, start_ms: float) -> None:
        self.gpus = gpus
        self.tally.update({_LOAD: start_ms})

    def add(self, report: ShardReport) -> None:
        self.tally.update(report.tally)
        set_time_spent(self.profile.spent_ms)

    def take_over(self, sums: ShardSums, *, earlier: Mapping[str, float]) -> None:
        """Replace the sums by those of a plan's workers, plus the tally of earlier plans."""
        tally = Counter(earlier)
        tally.update(sums.tally)
        self.tally = tally  # at once, as another thread reads it
        # Usually the same ones as of earlier plans.
        self.engines, self.gpus = max(self.engines, sums.engines), max(self.gpus, sums.gpus)

    def cost(self) -> RunCost:
        return RunCost(
            jobs=self.jobs_ended,
            wall_ms=self._wall_ms(),
            engines=self.engines,
            gpus=self.gpus,
            prompt_tokens=self.tally["prompt_tokens"],
            cached_tokens=self.tally["cached_tokens"],
            stage_ms=part_of_tally(self.tally, "stage_ms"),
        )

    def is_over_budget(self) -> bool:
        """Return whether the run has reached `max_cost`; each run answers some jobs first."""
        return self.jobs_ended > 0 and (self._price() or 0.0) >= self.max_cost

    def require_budget(self) -> None:
        """Raise BudgetReachedError if the run has reached `max_cost`."""
        if self.is_over_budget():
            cost, limit = format_price(self._price() or 0.0), format_price(self.max_cost)
            raise BudgetReachedError(
                f"The run has cost {cost}, and run.max_cost is {limit}: it ended after "
                f"{pluralize(self.jobs_ended, 'job')}. Start it again to continue, up to the same cost."
            )

    def _price(self) -> float | None:
        """Return the cost so far; None without prices."""
        if not self.prices.is_set:
            return None
        return self._gpu_hours() * self.prices.per_gpu_hour + self.cost().cpu_hours * self.prices.per_cpu_hour

    def _gpu_hours(self) -> float:
        return (self.tally["gpu_ms"] if self._engines_ms else self.cost().gpu_ms) / 3.6e6

    @property
    def _engines_ms(self) -> dict[str, float]:
        """Milliseconds by part, summed over engines on other machines."""
        return part_of_tally(self.tally, "engines_ms")

    def bottleneck(self) -> str:
        """Describe the bottleneck and what to change; empty if no job was labelled."""
        if not self.tally["jobs_labelled"]:
            return ""
        cores = usable_cores()
        return describe_bottleneck(
            self.cost(),
            processes=cores if self._engines_ms else self.processes,
            cores=cores,
            own_cores=self.own_cores,
            frames=self.frames_setting,
        )

    @property
    def own_cores(self) -> float:
        """Average number of cores used by this process since the engine was loaded."""
        if self._clocks_at_load_s is None:
            return 0.0
        began_cpu_s, began_s = self._clocks_at_load_s
        return (time.process_time() - began_cpu_s) / max(time.perf_counter() - began_s, 1e-9)

    def _wall_ms(self) -> dict[str, float]:
        """Return the time by part; with remote engines, their mean replaces the time of this process."""
        own_ms, engines_ms = self.profile.spent_ms, self._engines_ms
        if not engines_ms:
            return own_ms
        own_ms.pop(RunPhase.ELSEWHERE, None)
        # Another run that works on the plan reports its own setup and audit as well.
        remote = engines_ms.keys() - {RunPhase.SETUP, RunPhase.ELSEWHERE, RunPhase.AUDIT}
        return own_ms | {part: engines_ms[part] / self.engines for part in remote}

    def columns(self) -> dict[str, Any]:
        """Return the columns of the run's row."""
        cost = self.cost()
        return {
            **{name: int(self.tally[name]) for name in _COUNTS},
            "stage_ms": cost.stage_ms,
            "coverage": part_of_tally(self.tally, "coverage"),
            "engines": self.engines,
            "gpus": self.gpus,
            "wall_ms": cost.wall_ms,
            "jobs_per_s": cost.jobs_per_s,
            "jobs_per_hour_held": cost.jobs_per_hour_held,
            "gpu_hours": self._gpu_hours(),
            "cpu_hours": cost.cpu_hours,
            "cost": self._price(),
            "bottleneck": self.bottleneck(),
        }
