"""What a run routed to a dense sampler, why, and what that cost."""

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

    from sqlalchemy import Connection, Engine

    from tasks.database.scope import Scope

_KEPT = ""
# In the order in which a run decides.
_REASONS = {
    "task": "dense sampler by task",
    "coverage": "dense sampler, since keyframes do not cover the video",
    _KEPT: "keyframes only",
    "margin": "escalated, since the margin was low",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTaken:
    """The labels of a run that went one way.

    Attributes:
        reason: What decided against keyframes: `task`, `coverage` or `margin`; empty for keyframes alone.
        known: Those of them whose answer is known.
        correct: Those of these whose label is that answer.
        videos: Videos, or segments of videos, whose frames were chosen for them.
        frames: Frames decoded for these, each counted once however many jobs it has.
    """

    reason: str
    jobs: int
    known: int
    correct: int
    videos: int
    frames: int

    @property
    def title(self) -> str:
        """The reason in a few words."""
        return _REASONS.get(self.reason, self.reason)

    @property
    def accuracy(self) -> float | None:
        """Fraction of the known answers that the labels match; None if none is known."""
        return self.correct / self.known if self.known else None

    def __str__(self) -> str:
        """Describe the route's jobs, accuracy and frames."""
        accuracy = f", accuracy {self.accuracy:.3f} of {self.known:,}" if self.accuracy is not None else ""
        frames = f"{pluralize(self.frames, 'frame')} of {pluralize(self.videos, 'video')}"
        return f"{pluralize(self.jobs, 'job')}{accuracy}, {frames}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """The routes of a run, in the order in which it decides.

    Attributes:
        routes: Those that labels of the run took.
        videos: All videos, or segments, each counted once.
        frames: Frames decoded on all routes, each frame file counted once.
        dense_frames: Frames that the dense sampler would decode of all videos: what it did of those that it had, on
            any route, and of each other one in proportion to the gaps between its keyframes; None if it had none.
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
        """Describe the routes and their cost as names and values."""
        return [*((f"route: {route.title}", str(route)) for route in self.routes), ("frames decoded", self.cost)]


def read_routing(engine: Engine, scope: Scope, *, run_id: UUID) -> Routing | None:
    """Count a run's labels by route; None if its spec has only one, or it wrote none."""
    with database_errors(), engine.connect() as connection:
        return _read(connection, scope, run_id)


def _read(connection: Connection, scope: Scope, run_id: UUID) -> Routing | None:
    sampling = SPEC.c.body["sampling"]
    is_routed = (sampling["sampler"].astext == "auto") | sampling["escalate_below"].astext.is_not(None)
    if not connection.execute(select(is_routed).where(SPEC.c.spec_id == scope.spec_id)).scalar():
        return None
    rows = select(RESULT).where(RESULT.c.run_id == run_id, scope.matches(RESULT)).subquery()
    reason = func.coalesce(rows.c.routed_by, _KEPT)
    counts = select(
        reason.label("reason"),
        func.count().label("jobs"),
        func.count(rows.c.answer).label("known"),
        func.count().filter(rows.c.label == rows.c.answer).label("correct"),
    ).group_by(reason)
    shown = connection.execute(select(sampling["num_frames"].as_integer()).where(SPEC.c.spec_id == scope.spec_id))
    parameters = {"run_id": run_id, "dataset": scope.dataset, "spec_id": scope.spec_id, "shown": shown.scalar_one()}
    spent = {row["reason"]: row for row in connection.execute(text(read_query("routing")), parameters).mappings()}
    routes = [
        RouteTaken(**row, videos=int(spent[row["reason"]]["videos"]), frames=int(spent[row["reason"]]["frames"]))
        for row in connection.execute(counts).mappings()
    ]
    if not routes:
        return None
    order, total = [*_REASONS], spent[None]
    return Routing(
        routes=tuple(sorted(routes, key=lambda route: order.index(route.reason))),
        videos=int(total["videos"]),
        frames=round(total["frames"]),
        dense_frames=None if total["dense_frames"] is None else round(total["dense_frames"]),
    )
