"""Render the page of a live session, as one self-contained HTML file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reelabel.text import pluralize
from tasks.report.rendering import MAX_BYTES, render_page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tasks.report.live.gather import SessionReport

_ANSWERS = {
    "temperature": "temperature {:g}",
    "top_p": "top-p {:g}",
    "max_tokens": "at most {} tokens an answer",
    "seed": "seed {}",
}
_SECTIONS = (("glance", "Session"), ("queries", "Questions"))


def render_session(report: SessionReport) -> str:
    """Render a page of less than MAX_BYTES: frames are left out of the last questions, then the questions."""
    while len((page := _render(report)).encode()) >= MAX_BYTES:
        having = [number for number, query in enumerate(report.queries) if query.frames]
        first = having[len(having) // 2] if having else len(report.queries)
        thinned = (
            replace(query, frames=()) if number >= first else query for number, query in enumerate(report.queries)
        )
        report = replace(report, queries=tuple(thinned) if having else report.queries[: len(report.queries) // 2])
    return page


def _render(report: SessionReport) -> str:
    return render_page(
        "live.html.jinja",
        own=("theme.js",),
        charts=False,
        report=report,
        session=report.session,
        sections=_SECTIONS,
        asked_for=_asked_for(report.session["config"]),
        short_id=str(report.session["session_id"])[:8],
    )


def _asked_for(config: Mapping[str, Any]) -> list[str]:
    """Say what a session's client asked for; a configuration from elsewhere may lack anything."""
    said = []
    if (window_s := config.get("window_s")) is not None:
        said.append(f"window of {window_s:g} s")
    elif (window := config.get("window")) is not None:
        said.append(f"window of {pluralize(window, 'frame')}")
    elif (most := config.get("max_frames")) is not None:
        said.append(f"at most {pluralize(most, 'frame')} seen")
    if (num_frames := config.get("num_frames")) is not None:
        said.append(f"at most {pluralize(num_frames, 'frame')} of it shown")
    if sink := config.get("sink"):
        said.append(f"sink of {pluralize(sink, 'frame')}")
    if not config.get("enable_frame_filter", True):
        said.append("similar frames kept")
    elif (threshold := config.get("frame_filter_threshold")) is not None:
        said.append(f"frames of a similarity above {threshold:g} dropped")
    sampling = config.get("sampling", {})
    said += [text.format(sampling[name]) for name, text in _ANSWERS.items() if sampling.get(name) is not None]
    if system_prompt := config.get("system_prompt"):
        said.append(f"system prompt \u201c{system_prompt}\u201d")
    return said
