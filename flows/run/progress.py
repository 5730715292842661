"""Progress and cost of a run."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from flows.shard.report import set_time_spent
from infra.errors import BudgetReachedError
from infra.settings import CostSettings
from reelabel.cores import usable_cores
from reelabel.text import pluralize
from tasks.domain import RunCost, RunPhase, WallClockProfile
from tasks.domain.cost import describe_bottleneck, format_price

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flows.shard.report import ShardReport

_SUMS = (
    "jobs_labelled",
    "jobs_failed",
    "videos_extracted",
    "videos_cached",
    "videos_rewritten",
    "prompt_tokens",
    "cached_tokens",
)
_SHOWN = (*_SUMS, "shards_done", "stage_ms", "coverage", "engines", "gpus")


@dataclass(slots=True, kw_only=True)
class Progress:
    """Sums over the shards that are done.

    Attributes:
        gpus: GPUs held by the engines, once loaded.
        engines_ms: Milliseconds by part, summed over engines on other machines.
        gpu_ms: Milliseconds for which these held GPUs, summed over GPUs.
        profile: Wall-clock profile.
        prices: What machines cost.
        max_cost: Cost at which the run ends.
        frames_setting: Setting of the number of frames, for advice.
    """

    processes: int
    gpus: int = 0
    engines: int = 1
    engines_ms: dict[str, float] = field(default_factory=dict)
    gpu_ms: float = 0.0
    profile: WallClockProfile = field(default_factory=WallClockProfile)
    prices: CostSettings = field(default_factory=CostSettings)
    max_cost: float = inf
    frames_setting: str = "sampling.num_frames"
    shards_done: int = 0
    jobs_labelled: int = 0
    jobs_failed: int = 0
    videos_extracted: int = 0
    videos_cached: int = 0
    videos_rewritten: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    stage_ms: dict[str, float] = field(default_factory=dict)
    coverage: dict[str, int] = field(default_factory=dict)
    _loaded: tuple[float, float] | None = field(default=None, init=False, repr=False)

    @property
    def jobs_ended(self) -> int:
        """Jobs that have a label or a failure."""
        return self.jobs_labelled + self.jobs_failed

    def start_cpu_clock(self) -> None:
        """Start measuring the CPU time of this process, now that the engine is loaded."""
        self._loaded = time.process_time(), time.perf_counter()

    def add(self, report: ShardReport) -> None:
        """Add a shard."""
        sums = {"shards_done": 1, "jobs_labelled": report.labels, "jobs_failed": report.failures}
        names = ("videos_extracted", "videos_cached", "videos_rewritten", "prompt_tokens", "cached_tokens")
        sums |= {name: getattr(report, name) for name in (*names, "stage_ms", "coverage")}
        self.take_over(sums, earlier=self.sums())
        set_time_spent(self.profile.spent_ms)

    def sums(self) -> dict[str, Any]:
        """Return the current sums, for `take_over`."""
        return {name: getattr(self, name) for name in (*_SHOWN, "engines_ms", "gpu_ms")}

    def take_over(self, sums: Mapping[str, Any], *, earlier: Mapping[str, Any]) -> None:
        """Set sums, by attribute name, to those of a plan's workers plus those of earlier plans."""
        for name, value in sums.items():
            setattr(self, name, _combined(name, earlier[name], value))

    def cost(self) -> RunCost:
        """Return the cost so far."""
        return RunCost(
            jobs=self.jobs_ended,
            wall_ms=self._wall_ms(),
            engines=self.engines,
            gpus=self.gpus,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            stage_ms=self.stage_ms,
        )

    def is_over_budget(self) -> bool:
        """Return whether the run has reached the cost at which it ends; each run answers some jobs."""
        return self.jobs_ended > 0 and (self._price() or 0.0) >= self.max_cost

    def require_budget(self) -> None:
        """Raise BudgetReachedError if the run has reached the cost at which it ends."""
        if self.is_over_budget():
            cost, most = format_price(self._price() or 0.0), format_price(self.max_cost)
            raise BudgetReachedError(
                f"The run has cost {cost}, and run.max_cost is {most}: it ended after "
                f"{pluralize(self.jobs_ended, 'job')}. Start it again to continue, up to the same cost."
            )

    def _price(self) -> float | None:
        """Return what the run has cost so far; None without prices."""
        if not self.prices.is_set:
            return None
        return self._gpu_hours() * self.prices.per_gpu_hour + self.cost().cpu_hours * self.prices.per_cpu_hour

    def _gpu_hours(self) -> float:
        return (self.gpu_ms if self.engines_ms else self.cost().gpu_ms) / 3.6e6

    def bottleneck(self) -> str:
        """Describe the bottleneck and what to change; empty if no job was labelled."""
        if not self.jobs_labelled:
            return ""
        cores = usable_cores()
        return describe_bottleneck(
            self.cost(),
            processes=cores if self.engines_ms else self.processes,
            cores=cores,
            own_cores=self.own_cores,
            frames=self.frames_setting,
        )

    @property
    def own_cores(self) -> float:
        """Average number of cores used by this process since the engine was loaded."""
        if self._loaded is None:
            return 0.0
        began_cpu_s, began_s = self._loaded
        return (time.process_time() - began_cpu_s) / max(time.perf_counter() - began_s, 1e-9)

    def _wall_ms(self) -> dict[str, float]:
        """Return the time by part; with remote engines, their mean replaces the time of this process."""
        own_ms = self.profile.spent_ms
        if not self.engines_ms:
            return own_ms
        own_ms.pop(RunPhase.ELSEWHERE, None)
        # Another run that works on the plan includes its own setup and audit, which are not ours.
        theirs = self.engines_ms.keys() - {RunPhase.SETUP, RunPhase.ELSEWHERE, RunPhase.AUDIT}
        return own_ms | {part: self.engines_ms[part] / self.engines for part in theirs}

    def columns(self) -> dict[str, Any]:
        """Return the columns of the run's row."""
        cost = self.cost()
        return {name: getattr(self, name) for name in _SHOWN} | {
            "wall_ms": cost.wall_ms,
            "jobs_per_s": cost.jobs_per_s,
            "jobs_per_hour_held": cost.jobs_per_hour_held,
            "gpu_hours": self._gpu_hours(),
            "cpu_hours": cost.cpu_hours,
            "cost": self._price(),
            "bottleneck": self.bottleneck(),
        }


def _combined(name: str, one: Any, other: Any) -> Any:  # noqa: ANN401 - numbers, or numbers by name
    if name in {"engines", "gpus"}:  # usually the same ones
        return max(one, other)
    if isinstance(one, dict):
        return {key: one.get(key, 0) + other.get(key, 0) for key in one | other}
    return one + other
