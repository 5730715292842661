"""How far a run has come, and what that took."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tasks.domain import RunCost, TimeLedger
from tasks.domain.bottleneck import name_bottleneck

if TYPE_CHECKING:
    from flows.shards import ShardReport

_SUMS = ("jobs_labelled", "jobs_failed", "videos_extracted", "videos_cached", "prompt_tokens", "cached_tokens")


@dataclass(slots=True, kw_only=True)
class Progress:
    """Sums over the shards that are done.

    Attributes:
        processes: Decoding processes.
        gpus: GPUs that the engine holds, once it is loaded.
        ledger: Where the time went.
    """

    processes: int
    gpus: int = 0
    ledger: TimeLedger = field(default_factory=TimeLedger)
    shards_done: int = 0
    jobs_labelled: int = 0
    jobs_failed: int = 0
    videos_extracted: int = 0
    videos_cached: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    stage_ms: dict[str, float] = field(default_factory=dict)

    @property
    def jobs_ended(self) -> int:
        """Jobs that have a label or a failure."""
        return self.jobs_labelled + self.jobs_failed

    def add(self, report: ShardReport) -> None:
        """Count a shard in."""
        self.shards_done += 1
        self.jobs_labelled += report.labels
        self.jobs_failed += report.failures
        self.videos_extracted += report.videos_extracted
        self.videos_cached += report.videos_cached
        self.prompt_tokens += report.prompt_tokens
        self.cached_tokens += report.cached_tokens
        for stage, ms in report.stage_ms.items():
            self.stage_ms[stage] = self.stage_ms.get(stage, 0.0) + ms

    def cost(self) -> RunCost:
        """What it took up to the ledger's last charge."""
        return RunCost(
            jobs=self.jobs_ended,
            wall_ms=self.ledger.spent_ms,
            gpus=self.gpus,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
        )

    def bottleneck(self) -> str:
        """Say what to change first."""
        return name_bottleneck(self.cost(), processes=self.processes, cores=len(os.sched_getaffinity(0)))

    def columns(self) -> dict[str, Any]:
        """Give the columns of the run's row."""
        cost = self.cost()
        return {name: getattr(self, name) for name in (*_SUMS, "shards_done", "stage_ms", "gpus")} | {
            "wall_ms": cost.wall_ms,
            "jobs_per_s": cost.jobs_per_s,
            "jobs_per_hour_held": cost.jobs_per_hour_held,
            "bottleneck": self.bottleneck(),
        }
