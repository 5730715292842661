"""Texts of the jobs that a page shows: shortened where they would leave no room, and each held once."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tasks.report.jobs import ShownJob, ShownJobs

# To how many characters texts are shortened, one after the other.
LENGTHS = (4_000, 2_000, 1_000, 500, 250, 120, 60, 30)
_SHARED = ("question", "system_prompt")


def shorten_texts(shown: ShownJobs, most_characters: int) -> ShownJobs:
    """Shorten every text of every job but its id, by which it is found."""
    return replace(shown, jobs=tuple(_shorten(job, most_characters) for job in shown.jobs))


def share_texts(jobs: Iterable[ShownJob]) -> tuple[list[dict[str, Any]], list[str]]:
    """Give jobs as JSON values whose question and system prompt are numbers, and the texts that they count."""
    rows = [{field.name: getattr(job, field.name) for field in fields(job)} for job in jobs]
    texts = list(dict.fromkeys(row[name] for row in rows for name in _SHARED if row[name] is not None))
    number_of = {text: number for number, text in enumerate(texts)}
    return [row | {name: number_of.get(row[name]) for name in _SHARED} for row in rows], texts


def _shorten(job: ShownJob, most_characters: int) -> ShownJob:
    def cut(value: Any) -> Any:  # noqa: ANN401 - a column's value
        if not isinstance(value, str) or len(value) <= most_characters:
            return value
        return f"{value[:most_characters]}... ({len(value):,} characters)"

    return replace(
        job,
        facts={name: cut(value) for name, value in job.facts.items()},
        choices=tuple((cut(text), share) for text, share in job.choices) if job.choices else job.choices,
        **{name: cut(getattr(job, name)) for name in ("before", "question", "system_prompt", "video")},
    )
