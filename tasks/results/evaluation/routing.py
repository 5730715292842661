"""The jobs that a run routed to a dense sampler, why, and at what cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select, text

from infra.database.connect import database_errors
from reelabel.text import pluralize
from sql.queries import read_query
from tasks.database.tables import RESULT, SPEC

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy import Engine

    from tasks.database.scope import Scope

_FRAMES = text(read_query("routing"))
_KEPT = ""
# In the order in which runs decide.
_REASONS = {
    "task": "dense sampler by task",
    "coverage": "dense sampler, since keyframes do not cover the video",
    _KEPT: "keyframes only",
    "margin": "escalated, since the margin was low",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTaken:
    """The labels of a run on one route.

    Attributes:
        reason: What decided against keyframes: `task`, `coverage` or `margin`; empty for keyframes alone.
        known: Jobs whose answer is known.
        correct: Jobs whose label is that answer.
        videos: Videos, or segments of videos, whose frames were sampled.
        frames: Frames decoded for these, counted once however many jobs share them.
    """

    reason: str
    jobs: int
    known: int
    correct: int
    videos: int
    frames: int

    @property
    def title(self) -> str:
        return _REASONS.get(self.reason, self.reason)

    @property
    def accuracy(self) -> float | None:
        """Fraction of the known answers that the labels match; None if none is known."""
        return self.correct / self.known if self.known else None

    def __str__(self) -> str:
        accuracy = f", accuracy {self.accuracy:.3f} of {self.known:,}" if self.accuracy is not None else ""
        frames = f"{pluralize(self.frames, 'frame')} of {pluralize(self.videos, 'video')}"
        return f"{pluralize(self.jobs, 'job')}{accuracy}, {frames}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """The routes of a run's labels, in the order in which runs decide.

    Attributes:
        videos: All videos, or segments, each counted once.
        frames: Frames decoded on all routes, each frame file counted once.
        dense_frames: Frames that the dense sampler would decode of all videos: those it decoded, and an estimate for
            the other videos by the gaps between their keyframes; None if it decoded none.
    """

    routes: tuple[RouteTaken, ...]
    videos: int
    frames: int
    dense_frames: int | None

    @property
    def cost(self) -> str:
        """Compare the frames decoded with those of the dense sampler alone."""
        if not self.dense_frames:
            return f"{self.frames:,}"
        share = self.frames / self.dense_frames
        return f"{self.frames:,}, {share:.0%} of about {self.dense_frames:,} by the dense sampler alone"

    def lines(self) -> list[tuple[str, str]]:
        return [*((f"route: {route.title}", str(route)) for route in self.routes), ("frames decoded", self.cost)]


def read_routing(engine: Engine, scope: Scope, *, run_id: UUID) -> Routing | None:
    """Count a run's labels by route; None if its spec has only one route, or the run wrote no label."""
    sampling = SPEC.c.body["sampling"]
    is_routed = (sampling["sampler"].astext == "auto") | sampling["escalate_below"].astext.is_not(None)
    shown_if_routed = select(sampling["num_frames"].as_integer()).where(SPEC.c.spec_id == scope.spec_id, is_routed)
    reason = func.coalesce(RESULT.c.routed_by, _KEPT)
    counts = (
        select(
            reason.label("reason"),
            func.count().label("jobs"),
            func.count(RESULT.c.answer).label("known"),
            func.count().filter(RESULT.c.label == RESULT.c.answer).label("correct"),
        )
        .where(RESULT.c.run_id == run_id, scope.matches(RESULT))
        .group_by(reason)
    )
    with database_errors(), engine.connect() as connection:
        if (shown := connection.execute(shown_if_routed).scalar()) is None:
            return None
        spent = connection.execute(_FRAMES, {**scope.key, "run_id": run_id, "shown": shown}).mappings()
        costs = {row["reason"]: row for row in spent}
        routes = [
            RouteTaken(**row, videos=int(costs[row["reason"]]["videos"]), frames=int(costs[row["reason"]]["frames"]))
            for row in connection.execute(counts).mappings()
        ]
    if not routes:
        return None
    order, total = [*_REASONS], costs[None]
    return Routing(
        routes=tuple(sorted(routes, key=lambda route: order.index(route.reason))),
        videos=int(total["videos"]),
        frames=round(total["frames"]),
        dense_frames=None if total["dense_frames"] is None else round(total["dense_frames"]),
    )
