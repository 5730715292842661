"""Reads the timeline of a run's shards, and its slowest jobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from reelabel.sampling.uniform import pick_evenly
from tasks.database.tables import PLAN, RESULT, SHARD
from tasks.report.jobs import SPENT_MS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, RowMapping

    from tasks.database.scope import Scope

_STAGES = ("extract", "infer")
_MAX_SLOWEST = 8
_MAX_DRAWN_SHARDS = 60
_CLOCK_SKEW_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The shards that finished during a run, including those of other runs' plans."""

    # An evenly spaced selection, in the order of extraction: `shard`, and the start and end of its extraction and
    # inference, `extract_s` and `infer_s`, in seconds since the start of the run.
    drawn: Sequence[Mapping[str, Any]]
    shards: int
    extract_s: float  # during which at least one shard was being extracted
    infer_s: float  # during which at least one shard was being answered
    both_s: float  # during which both happened


def load_timeline(connection: Connection, scope: Scope, run: RowMapping) -> Timeline | None:
    """Read the timeline of a run; return None if there are no shards, for example because their plan was removed."""
    since = run["started_at"]
    until = run["ended_at"] or datetime.now(UTC)
    ended_s = SHARD.c.report["between_s"]["infer"][1].as_float()
    within = ended_s.between(
        (since - timedelta(seconds=_CLOCK_SKEW_S)).timestamp(),
        (until + timedelta(seconds=_CLOCK_SKEW_S)).timestamp(),
    )
    query = (
        select(SHARD.c.shard_index, SHARD.c.report["between_s"])
        .join(PLAN, PLAN.c.plan_id == SHARD.c.plan_id)
        .where(scope.matches(PLAN), SHARD.c.state == "done", within)
    )
    start_s = since.timestamp()
    spans = [
        {"shard": shard, **{f"{stage}_s": [at_s - start_s for at_s in between_s[stage]] for stage in _STAGES}}
        for shard, between_s in connection.execute(query)
    ]
    if not spans:
        return None
    spans.sort(key=lambda span: (span["extract_s"][0], span["shard"]))
    extract, infer = (_union([span[f"{stage}_s"] for span in spans]) for stage in _STAGES)
    extract_s, infer_s, either_s = (_length(each) for each in (extract, infer, _union([*extract, *infer])))
    return Timeline(
        drawn=[spans[at] for at in dict.fromkeys(pick_evenly(len(spans), _MAX_DRAWN_SHARDS))],
        shards=len(spans),
        extract_s=extract_s,
        infer_s=infer_s,
        both_s=extract_s + infer_s - either_s,
    )


def _union(spans: Sequence[Sequence[float]]) -> list[list[float]]:
    """Merge overlapping spans; return disjoint ones in ascending order."""
    merged: list[list[float]] = []
    for start_s, end_s in sorted(map(list, spans)):
        if merged and start_s <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end_s)
        else:
            merged.append([start_s, end_s])
    return merged


def _length(spans: Sequence[Sequence[float]]) -> float:
    return sum(end_s - start_s for start_s, end_s in spans)


def slowest_jobs(connection: Connection, scope: Scope, run: RowMapping) -> list[RowMapping]:
    """List the slowest jobs of one run, the slowest first; the time of a video is shared with its other jobs."""
    names = ("job_id", "fetch_ms", "decode_ms", "embed_ms", "preprocess_ms", "inference_ms")
    query = (
        select(
            SPENT_MS.label("spent_ms"),
            (RESULT.c.cache_write_ms + RESULT.c.cache_read_ms).label("cache_ms"),
            *(RESULT.c[name] for name in names),
        )
        .where(scope.matches(RESULT), RESULT.c.run_id == run["run_id"])
        .order_by(SPENT_MS.desc(), RESULT.c.job_id)
        .limit(_MAX_SLOWEST)
    )
    return list(connection.execute(query).mappings())
