"""Gather what the page of a live session shows: what was kept, what was asked and answered, and the delays."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import select

from infra.database.connect import database_errors
from reelabel.errors import ConfigurationError
from tasks.database.tables import RESULT
from tasks.live.record.stored import SessionFrames
from tasks.report.strip import thumbnail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Engine

    from tasks.frame_cache.sealed_files import SealedFiles
    from tasks.live.record.frame_part import KeptFrame
    from tasks.live.record.stored import StoredSession

MAX_QUERIES = 200
_FRAMES_EACH = 6
_MAX_FRAMES = 300
# Ticks of the timeline; more could not be told apart.
_MAX_TICKS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFrame:
    """A frame that a query saw.

    Attributes:
        time_s: Its time on the session's clock.
        image: Thumbnail as a WebP data URI.
    """

    time_s: float
    image: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownQuery:
    """A query of the session.

    Attributes:
        row: Its row of `live_query`.
        frames: Some of the frames that it saw, evenly spread, the last one among them.
        again: Answers of offline runs to the same question about the same frames: model, label, margin.
    """

    row: Mapping[str, Any]
    frames: tuple[ShownFrame, ...]
    again: tuple[tuple[str, str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Milliseconds of all answered queries: the median, the 95th percentile, and the longest."""

    p50: float
    p95: float
    longest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport:
    """What the page shows.

    Attributes:
        session: The session's row, with its `state`.
        queries: The first MAX_QUERIES queries.
        asked: Number of all queries.
        answered: Number of those with an answer.
        first_token: Delays from a query to the first token of its answer; None if no query was answered.
        total: Delays from a query to the end of its answer.
        kept_s: Times of kept frames, at most _MAX_TICKS of them.
        ends_s: Time of the last kept frame or query.
        note: Why frames are missing; empty if none is.
        made_at: When the page was made.
    """

    session: Mapping[str, Any]
    queries: tuple[ShownQuery, ...]
    asked: int
    answered: int
    first_token: Delays | None
    total: Delays | None
    kept_s: tuple[float, ...]
    ends_s: float
    note: str
    made_at: datetime


def gather_session(engine: Engine, session: StoredSession, files: SealedFiles) -> SessionReport:
    """Gather a session's page.

    Raises:
        TransientError: A service is unavailable.
    """
    frames = SessionFrames(session, files)
    again, note, room = _asked_again(engine, session), "", _MAX_FRAMES
    queries = []
    for row in session.queries[:MAX_QUERIES]:
        shown: tuple[ShownFrame, ...] = ()
        if room > 0 and not note:
            try:
                shown = _shown(frames.seen_by(row))
            except ConfigurationError as error:
                note = error.message
        room -= len(shown)
        queries.append(ShownQuery(row=row, frames=shown, again=tuple(again.get(f"query-{row['query']}", ()))))
    kept_s, more = _kept(session, frames)
    answered = [row for row in session.queries if row["answer"] is not None]
    asked_s = [row["asked_s"] for row in session.queries]
    return SessionReport(
        session=session.row,
        queries=tuple(queries),
        asked=len(session.queries),
        answered=len(answered),
        first_token=_delays([row["first_token_ms"] for row in answered if row["first_token_ms"] is not None]),
        total=_delays([row["total_ms"] for row in answered]),
        kept_s=kept_s,
        ends_s=max((*kept_s, *asked_s), default=0.0),
        note=note or more,
        made_at=datetime.now(UTC),
    )


def _asked_again(engine: Engine, session: StoredSession) -> dict[str, list[tuple[str, str, float]]]:
    """Return the answers of `reelabel classify --session`, by job id, the latest first."""
    columns = (RESULT.c.job_id, RESULT.c.model, RESULT.c.label, RESULT.c.margin)
    query = select(*columns).where(RESULT.c.dataset == f"live-{session.row['session_id']}")
    found: dict[str, list[tuple[str, str, float]]] = {}
    with database_errors(), engine.connect() as connection:
        for job_id, *answer in connection.execute(query.order_by(RESULT.c.created_at.desc())):
            found.setdefault(job_id, []).append((answer[0], answer[1], answer[2]))
    return found


def _shown(seen: Sequence[KeptFrame]) -> tuple[ShownFrame, ...]:
    if not seen:
        return ()
    rows = np.linspace(len(seen) - 1, 0, min(len(seen), _FRAMES_EACH)).round().astype(int)
    return tuple(ShownFrame(time_s=seen[row].time_s, image=thumbnail(seen[row].image)) for row in sorted(set(rows)))


def _kept(session: StoredSession, frames: SessionFrames) -> tuple[tuple[float, ...], str]:
    """Return times of kept frames, and why there are not all; of a long session, only those that begin a file."""
    if sum(part["frames"] for part in session.parts) > _MAX_TICKS:
        return tuple(part["first_s"] for part in session.parts[:_MAX_TICKS]), ""
    try:
        return tuple(frame.time_s for part in session.parts for frame in frames.frames_of(part)), ""
    except ConfigurationError as error:
        return tuple(part["first_s"] for part in session.parts), error.message


def _delays(ms: Sequence[float]) -> Delays | None:
    if not ms:
        return None
    p50, p95 = np.percentile(ms, [50, 95]).tolist()
    return Delays(p50=p50, p95=p95, longest=max(ms))
