"""A run in a few figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reelabel.sources.uri import redact_uri
from tasks.domain import RunCost

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import RowMapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """What a run did and cost.

    Attributes:
        asked: Jobs that ended in this run.
        skipped: Jobs of the manifest that had ended before, or were not chosen.
        spent_s: Seconds from its start to its end; None while it goes on.
        cost: None where it held no engine.
        parts: Milliseconds by what the time went into, the longest first.
        bottleneck: What to change first, in a sentence; empty where nothing is known.
        message: How it ended, or what it warned of.
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
    asked: int
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


def look(run: RowMapping, *, model: str = "") -> Glance:
    """Take the figures from a run's row."""
    asked = run["jobs_labelled"] + run["jobs_failed"]
    names = ("run_id", "dataset", "spec_id", "kind", "state", "started_at", "videos_extracted", "videos_cached", "host")
    parts = sorted((run["wall_ms"] or {}).items(), key=lambda part: -part[1])
    return Glance(
        **{name: run[name] for name in names},
        model=model,
        manifest_uri=redact_uri(run["manifest_uri"]),
        spent_s=(run["ended_at"] - run["started_at"]).total_seconds() if run["ended_at"] else None,
        jobs=run["jobs_total"],
        asked=asked,
        skipped=run["jobs_skipped"],
        labelled=run["jobs_labelled"],
        failed=run["jobs_failed"],
        shards=run["shards_done"],
        cost=_cost(run, asked),
        parts=tuple(parts),
        bottleneck=run["bottleneck"] or "",
        message=run["message"],
        versions={name: str(value) for name, value in run["versions"].items() if not isinstance(value, dict)},
    )


def _cost(run: RowMapping, asked: int) -> RunCost | None:
    if not asked or run["wall_ms"] is None:
        return None
    names = ("wall_ms", "engines", "gpus", "prompt_tokens", "cached_tokens")
    cost = RunCost(jobs=asked, **{name: run[name] for name in names})
    return cost if cost.loaded_ms else None
