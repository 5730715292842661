"""The page of a live session: kept frames, questions and answers, and delays."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import select

from infra.database.connect import database_errors
from reelabel.errors import ConfigurationError
from reelabel.sampling.uniform import pick_evenly
from reelabel.text import pluralize
from tasks.database.tables import RESULT, SPEC
from tasks.live.record.saved import SessionFrames
from tasks.report.frames import thumbnail
from tasks.report.render import Frames, render, render_page, with_cards

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Engine

    from tasks.frame_cache.sealed_files import SealedFiles
    from tasks.live.record.frame_part import KeptFrame
    from tasks.live.record.saved import SavedSession

MAX_QUERIES = 200
_FRAMES_EACH = 6  # at least 2, so that the last one is included
_MAX_FRAMES = 300
# Ticks of the timeline; more would be indistinguishable.
_MAX_TICKS = 2_000
_ANSWERS = {
    "temperature": "temperature {:g}",
    "top_p": "top-p {:g}",
    "max_tokens": "at most {} tokens per answer",
    "seed": "seed {}",
}
_SECTIONS = (("overview", "Session"), ("queries", "Questions"))


def load_session(engine: Engine, session: SavedSession, files: SealedFiles) -> dict[str, Any]:
    """Load the data of a session's page, by its names in the template.

    Raises:
        TransientError: A service is unavailable.
    """
    frames = SessionFrames(session, files)
    again, note, room = _replays(engine, session), "", _MAX_FRAMES
    queries = []
    for row in session.queries[:MAX_QUERIES]:
        shown: list[tuple[float, str]] = []
        if room > 0 and not note:
            try:
                shown = _shown(frames.seen_by(row))
            except ConfigurationError as error:
                note = error.message
        room -= len(shown)
        queries.append({"row": row, "frames": shown, "again": again.get(f"query-{row['query']}", [])})
    kept_s, more = _kept(session, frames)
    answered = [row for row in session.queries if row["answer"] is not None]
    return {
        "session": session.row,
        "queries": queries,
        "asked": len(session.queries),
        "answered": len(answered),
        "first_token": _delays([row["first_token_ms"] for row in answered if row["first_token_ms"] is not None]),
        "total": _delays([row["total_ms"] for row in answered]),
        "kept_s": kept_s,
        "ends_s": max((*kept_s, *(row["asked_s"] for row in session.queries)), default=0.0),
        "note": note or more,
        "made_at": datetime.now(UTC),
    }


def _replays(engine: Engine, session: SavedSession) -> dict[str, list[tuple[str, str, float]]]:
    """Return the answers of `reelabel classify --session` (model, label and margin) by job id, latest first."""
    model = SPEC.c.body["model"]["name"].astext
    query = (
        select(RESULT.c.job_id, model, RESULT.c.label, RESULT.c.margin)
        .join(SPEC, SPEC.c.spec_id == RESULT.c.spec_id)
        .where(RESULT.c.dataset == f"live-{session.row['session_id']}")
    )
    found: dict[str, list[tuple[str, str, float]]] = {}
    with database_errors(), engine.connect() as connection:
        for job_id, *answer in connection.execute(query.order_by(RESULT.c.created_at.desc())):
            found.setdefault(job_id, []).append((answer[0], answer[1], answer[2]))
    return found


def _shown(seen: Sequence[KeptFrame]) -> list[tuple[float, str]]:
    """Return times and thumbnails of some frames that a query saw, evenly spread, including the last one."""
    rows = pick_evenly(len(seen), min(len(seen), _FRAMES_EACH)) if seen else []
    return [(seen[row].time_s, thumbnail(seen[row].image)) for row in rows]


def _kept(session: SavedSession, frames: SessionFrames) -> tuple[tuple[float, ...], str]:
    """Return times of kept frames, and why some are missing; for a long session, only those that begin a file."""
    if sum(part["frames"] for part in session.parts) > _MAX_TICKS:
        return tuple(part["first_s"] for part in session.parts[:_MAX_TICKS]), ""
    try:
        return tuple(frame.time_s for part in session.parts for frame in frames.frames_of(part)), ""
    except ConfigurationError as error:
        return tuple(part["first_s"] for part in session.parts), error.message


def _delays(ms: Sequence[float]) -> dict[str, float] | None:
    """Return the median, 95th percentile and maximum of delays; None if there are none."""
    if not ms:
        return None
    p50, p95 = np.percentile(ms, [50, 95]).tolist()
    return {"p50": p50, "p95": p95, "longest": max(ms)}


def render_session(report: Mapping[str, Any]) -> str:
    """Render the page of a session from the data of `load_session`."""
    page = render_page(
        "live.html.jinja",
        scripts=(),
        report=report,
        session=report["session"],
        sections=_SECTIONS,
        asked_for=_asked_for(report["session"]["config"]),
        short_id=str(report["session"]["session_id"])[:8],
    )
    frames = Frames("seen.html.jinja")

    def draw(query: Mapping[str, Any], level: int) -> str:  # noqa: ARG001 - only its texts are shortened
        strip = frames.place(query["frames"], f"query-{query['row']['query']}") if query["frames"] else ""
        return render("query.html.jinja", row=query["row"], again=query["again"], strip=strip)

    return with_cards(
        page,
        report["queries"],
        draw,
        frames=frames,
        noun="question",
        known=report["asked"],
        why="the first ones",
        note="",
    )


def _asked_for(config: Mapping[str, Any]) -> list[str]:
    """Describe a session's configuration, in which any field may be missing."""
    parts = []
    if (window_s := config.get("window_s")) is not None:
        parts.append(f"window of {window_s:g} s")
    elif (window := config.get("window")) is not None:
        parts.append(f"window of {pluralize(window, 'frame')}")
    elif (most := config.get("max_frames")) is not None:
        parts.append(f"at most {pluralize(most, 'frame')} seen")
    if (num_frames := config.get("num_frames")) is not None:
        parts.append(f"at most {pluralize(num_frames, 'frame')} of it shown")
    if sink := config.get("sink"):
        parts.append(f"sink of {pluralize(sink, 'frame')}")
    if not config.get("enable_frame_filter", True):
        parts.append("similar frames kept")
    elif (threshold := config.get("frame_filter_threshold")) is not None:
        parts.append(f"frames of a similarity above {threshold:g} dropped")
    sampling = config.get("sampling", {})
    parts += [text.format(sampling[name]) for name, text in _ANSWERS.items() if sampling.get(name) is not None]
    if system_prompt := config.get("system_prompt"):
        parts.append(f"system prompt \u201c{system_prompt}\u201d")
    return parts
