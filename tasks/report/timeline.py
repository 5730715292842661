"""Timeline of the extraction and inference of a run's shards."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy import and_, select

from reelabel.sampling.uniform import pick_evenly
from tasks.database.tables import PLAN, SHARD

if TYPE_CHECKING:
    import numpy.typing as npt
    from sqlalchemy import Connection, RowMapping

    from tasks.database.scope import Scope

_MAX_DRAWN = 60
_CLOCK_SKEW_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSpan:
    """One shard, with times in seconds since the start of the run.

    Attributes:
        shard: Index in its plan.
    """

    shard: int
    jobs: int
    failures: int
    extract_from_s: float
    extract_to_s: float
    infer_from_s: float
    infer_to_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The shards that ended during a run, including those of plans by other runs.

    Attributes:
        drawn: An evenly spaced selection, in the order of extraction.
        shards: Number of shards.
        extract_s: Seconds during which at least one was being extracted.
        infer_s: Seconds during which at least one was being answered.
        both_s: Seconds during which both happened.
    """

    drawn: tuple[ShardSpan, ...]
    shards: int
    extract_s: float
    infer_s: float
    both_s: float


def read_timeline(connection: Connection, scope: Scope, run: RowMapping) -> Timeline | None:
    """Read the timeline of a run; return None if there are no shards, as after their plan was removed."""
    since = run["started_at"]
    until = run["ended_at"] or datetime.now(UTC)
    ended_s = SHARD.c.report["between_s"]["infer"][1].as_float()
    within = ended_s.between(
        (since - timedelta(seconds=_CLOCK_SKEW_S)).timestamp(),
        (until + timedelta(seconds=_CLOCK_SKEW_S)).timestamp(),
    )
    query = (
        select(SHARD.c.shard_index, SHARD.c.jobs, SHARD.c.report)
        .join(PLAN, PLAN.c.plan_id == SHARD.c.plan_id)
        .where(and_(scope.matches(PLAN), SHARD.c.state == "done", within))
    )
    spans = [_span(row, since.timestamp()) for row in connection.execute(query).mappings()]
    if not spans:
        return None
    spans.sort(key=lambda span: (span.extract_from_s, span.shard))
    extract = _union([(span.extract_from_s, span.extract_to_s) for span in spans])
    infer = _union([(span.infer_from_s, span.infer_to_s) for span in spans])
    extract_s, infer_s = _length(extract), _length(infer)
    either_s = _length(_union([*map(tuple, extract), *map(tuple, infer)]))
    return Timeline(
        drawn=tuple(spans[at] for at in dict.fromkeys(pick_evenly(len(spans), _MAX_DRAWN))),
        shards=len(spans),
        extract_s=extract_s,
        infer_s=infer_s,
        both_s=extract_s + infer_s - either_s,
    )


def _span(row: RowMapping, start_s: float) -> ShardSpan:
    report = row["report"]
    extract, infer = (report["between_s"][stage] for stage in ("extract", "infer"))
    return ShardSpan(
        shard=row["shard_index"],
        jobs=row["jobs"],
        failures=report["failures"],
        extract_from_s=extract[0] - start_s,
        extract_to_s=extract[1] - start_s,
        infer_from_s=infer[0] - start_s,
        infer_to_s=infer[1] - start_s,
    )


def _union(spans: list[tuple[float, float]]) -> npt.NDArray[np.float64]:
    """Merge overlapping spans; return disjoint spans in ascending order; shape (N, 2)."""
    ordered = np.array(sorted(spans), np.float64)
    reach = np.maximum.accumulate(ordered[:, 1])
    begins = np.r_[True, ordered[1:, 0] > reach[:-1]]
    ends = np.r_[np.flatnonzero(begins)[1:] - 1, len(ordered) - 1]
    merged: npt.NDArray[np.float64] = np.stack([ordered[begins, 0], reach[ends]], axis=1)
    return merged


def _length(spans: npt.NDArray[np.float64]) -> float:
    return float((spans[:, 1] - spans[:, 0]).sum())
