"""Render the page of a live session, as one self-contained HTML file."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING

from markupsafe import Markup

from tasks.report.rendering import MAX_BYTES, environment, policy, read

if TYPE_CHECKING:
    from tasks.report.live.gather import SessionReport

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
    script = f'"use strict";\n{{\n{read("assets", "theme.js")}\n}}'
    return (
        environment()
        .from_string(read("assets", "live.html.jinja"))
        .render(
            report=report,
            session=report.session,
            sections=_SECTIONS,
            style=Markup(read("assets", "style.css")),  # noqa: S704 - our own files
            script=Markup(script),  # noqa: S704
            policy=policy((script,)),
            short_id=str(report.session["session_id"])[:8],
            version=version("reelabel"),
        )
    )
