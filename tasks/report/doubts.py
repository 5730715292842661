"""What makes labels doubtful although nothing failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select

from infra.wording import pluralize
from tasks.results.tables import RESULT
from tasks.video.verdict_words import coverage_warnings

if TYPE_CHECKING:
    from sqlalchemy import Connection, RowMapping

    from tasks.report.key import Key


def find_doubts(connection: Connection, key: Key, run: RowMapping) -> tuple[str, ...]:
    """Say in a sentence each what to know before relying on the labels."""
    query = select(
        func.count().filter(RESULT.c.decode_note.contains("cut short")).label("cut_short"),
        func.count().filter(RESULT.c.same_position).label("by_position"),
    ).where(key.of(RESULT))
    counts = connection.execute(query).mappings().one()
    said = [f"{line}." for line in coverage_warnings(run["verdicts"])]
    if counts["cut_short"]:
        said.append(f"{pluralize(counts['cut_short'], 'label')} rest on what is left of a video that is cut short.")
    if counts["by_position"]:
        said.append(
            f"In {pluralize(counts['by_position'], 'job')} every order of the choices chose the same position, "
            "whatever stood there."
        )
    if run["state"] != "running" and run["message"] and not run["message"].startswith("Reconciled"):
        said.append(run["message"])
    return tuple(said)
