"""Summary of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reelabel.sources.object_info import redact_uri
from tasks.domain import RunCost

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import RowMapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """Key figures and cost of a run.

    Attributes:
        ended: Jobs that ended in this run.
        skipped: Jobs of the manifest that had already ended, or were not selected.
        spent_s: Seconds from its start to its end; None while it is running.
        cost: None if it held no engine.
        parts: Milliseconds by part of the wall-clock profile, the longest first.
        bottleneck: A sentence on what to change first; empty if unknown.
        message: Its outcome, or its warning.
    """

    run_id: UUID
    dataset: str
    spec_id: str
    manifest_uri: str
    kind: str
    state: str
    model: str
    started_at: datetime
    spent_s: float | None
    jobs: int
    ended: int
    skipped: int
    labelled: int
    failed: int
    videos_extracted: int
    videos_cached: int
    shards: int
    cost: RunCost | None
    parts: tuple[tuple[str, float], ...]
    bottleneck: str
    message: str
    host: str
    versions: dict[str, str]


def summarize(run: RowMapping, *, model: str = "") -> Glance:
    """Summarize a run from its row."""
    cost = RunCost.of_run(run)
    names = ("run_id", "dataset", "spec_id", "kind", "state", "started_at", "videos_extracted", "videos_cached", "host")
    parts = sorted((run["wall_ms"] or {}).items(), key=lambda part: -part[1])
    return Glance(
        **{name: run[name] for name in names},
        model=model,
        manifest_uri=redact_uri(run["manifest_uri"]),
        spent_s=(run["ended_at"] - run["started_at"]).total_seconds() if run["ended_at"] else None,
        jobs=run["jobs_total"],
        ended=run["jobs_labelled"] + run["jobs_failed"],
        skipped=run["jobs_skipped"],
        labelled=run["jobs_labelled"],
        failed=run["jobs_failed"],
        shards=run["shards_done"],
        cost=cost if cost and cost.jobs and cost.loaded_ms else None,
        parts=tuple(parts),
        bottleneck=run["bottleneck"] or "",
        message=run["message"],
        versions={name: str(value) for name, value in run["versions"].items() if not isinstance(value, dict)},
    )
