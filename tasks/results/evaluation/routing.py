"""What a run routed to a dense sampler, why, and what that cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from infra.database.connect import database_errors
from reelabel.wording import pluralize
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
        jobs: Number of labels.
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
    """

    routes: tuple[RouteTaken, ...]
    videos: int

    @property
    def frames(self) -> int:
        """Frames decoded on all routes."""
        return sum(route.frames for route in self.routes)

    @property
    def dense_frames(self) -> int | None:
        """Frames that the dense sampler would decode of all videos, at its mean over those it had; None without any."""
        dense = [route for route in self.routes if route.reason != _KEPT]
        videos = sum(route.videos for route in dense)
        return round(sum(route.frames for route in dense) / videos * self.videos) if videos else None

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
    """Count a run's labels by route; None if its spec has only one, or it wrote none.

    Raises:
        DatabaseUnavailableError: Postgres is unavailable.
    """
    with database_errors(), engine.connect() as connection:
        return _read(connection, scope, run_id)


def _read(connection: Connection, scope: Scope, run_id: UUID) -> Routing | None:
    sampling = SPEC.c.body["sampling"]
    is_routed = (sampling["sampler"].astext == "auto") | sampling["escalate_below"].astext.is_not(None)
    if not connection.execute(select(is_routed).where(SPEC.c.spec_id == scope.spec_id)).scalar():
        return None
    rows = select(RESULT).where(RESULT.c.run_id == run_id, scope.matches(RESULT)).subquery()
    reason = func.coalesce(rows.c.routed_by, _KEPT)
    # Rows of one view have the same cost to the last digit; rows do not say which segment they are about.
    view = (
        rows.c.source_fingerprint,
        rows.c.frames_used,
        rows.c.frames_decoded,
        rows.c.decode_ms,
        rows.c.longest_gap_s,
    )
    views = select(reason.label("reason"), *view).distinct().subquery()
    costs = select(
        views.c.reason, func.count().label("videos"), func.coalesce(func.sum(views.c.frames_decoded), 0).label("frames")
    ).group_by(views.c.reason)
    counts = select(
        reason.label("reason"),
        func.count().label("jobs"),
        func.count(rows.c.answer).label("known"),
        func.count().filter(rows.c.label == rows.c.answer).label("correct"),
    ).group_by(reason)
    spent = {row["reason"]: row for row in connection.execute(costs).mappings()}
    routes = [
        RouteTaken(**row, videos=spent[row["reason"]]["videos"], frames=int(spent[row["reason"]]["frames"]))
        for row in connection.execute(counts).mappings()
    ]
    if not routes:
        return None
    order = [*_REASONS]
    segment = (rows.c.source_fingerprint, rows.c.longest_gap_s)
    videos = connection.execute(select(func.count()).select_from(select(*segment).distinct().subquery())).scalar_one()
    return Routing(routes=tuple(sorted(routes, key=lambda route: order.index(route.reason))), videos=videos)
