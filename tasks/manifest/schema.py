"""The columns of a manifest, and what can be wrong with its rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from infra.text_bounds import MAX_CHOICE, MAX_ID, MAX_INLINE, MAX_TEXT
from reelabel.sources.object_info import INLINE_SCHEME, WEB_SCHEMES, redact_uri
from reelabel.text import pluralize, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


REQUIRED: dict[str, pl.DataType] = {
    "job_id": pl.String(),
    "video_uri": pl.String(),
    "prompt": pl.String(),
    "choices": pl.List(pl.String()),
}
OPTIONAL: dict[str, pl.DataType] = {
    "start_s": pl.Float64(),
    "end_s": pl.Float64(),
    "messages": pl.String(),
    "system_prompt": pl.String(),
    "template": pl.String(),
    "examples": pl.String(),
    "answer": pl.String(),
    "task": pl.String(),
    "subtask": pl.String(),
    "video_uris": pl.List(pl.String()),
}
COLUMNS = REQUIRED | OPTIONAL
# In place of several `video_uris`, or of `messages` with several videos or images: what such a job shows, in order.
MEDIA = pl.List(pl.Struct({"kind": pl.String(), "uri": pl.String()}))
# The columns of jobs: those of a manifest, with `video_uris` and `messages` resolved.
JOB_COLUMNS: dict[str, pl.DataType] = {name: kind for name, kind in COLUMNS.items() if name != "video_uris"} | {
    "media": MEDIA
}
# What a job that only describes its video lacks, with what stands in its place.
QUESTION: dict[str, object] = {"prompt": "", "choices": [], "system_prompt": None, "template": None}
QUESTION |= {"examples": None, "answer": None}
# Additional column: a row's number in the manifest, from 0.
ROW = "row"

SCHEMES = ("s3", "file", *WEB_SCHEMES, INLINE_SCHEME)

# The required columns that rows need not have where they have another one, by its name.
REPLACED = {"messages": frozenset({"video_uri", "prompt"}), "video_uris": frozenset({"video_uri"})}
# Characters of a text, or of each text of a list. Most URIs are shorter: see `tasks.manifest.check`.
MAX_CHARACTERS: dict[str, int] = {
    "job_id": MAX_ID,
    "video_uri": MAX_INLINE,
    "prompt": MAX_TEXT,
    "choices": MAX_CHOICE,
    "messages": MAX_INLINE,
    "system_prompt": MAX_TEXT,
    "template": MAX_TEXT,
    "examples": MAX_TEXT,
    "answer": MAX_CHOICE,
    "task": MAX_ID,
    "subtask": MAX_ID,
    "video_uris": MAX_INLINE,
}
# A Postgres index key must fit into a third of a page, together with dataset and spec.
LONGEST_ID_BYTES = MAX_ID

_SHOWN_ROWS = 3


def _no_rows() -> pl.Series:
    return pl.Series(ROW, [], dtype=pl.UInt32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A rule that some rows break.

    Attributes:
        rule: What is wrong, as a sentence.
        rows: Numbers of the rows that break it, from 0; empty if it concerns the whole file.
        values: The values of the first few; empty where there is none.
    """

    rule: str
    rows: pl.Series = field(default_factory=_no_rows, repr=False, compare=False)
    values: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Number of rows that break it; 0 if it concerns the whole file."""
        return len(self.rows)

    def __add__(self, later: Fault) -> Fault:
        """Merge with the same fault of later rows."""
        values = (*self.values, *later.values)[:_SHOWN_ROWS]
        return Fault(rule=self.rule, rows=pl.concat([self.rows, later.rows]), values=values)

    def __str__(self) -> str:
        """Format with the count and the first rows."""
        return self.describe(lambda row: f"row {row}")

    def describe(self, place: Callable[[int], str]) -> str:
        """Format with the count and the first rows, named by their place in a file."""
        if not self.count:
            return self.rule
        shown = zip(self.rows, self.values, strict=False)
        first = ", ".join(f"{place(row)} ({value})" if value else place(row) for row, value in shown)
        return f"{self.rule} {pluralize(self.count, 'row')}, first {first}."


def row_fault(rule: str, column: str, rows: Sequence[tuple[int, object]]) -> Fault:
    """Build the fault of rows, given their numbers and their values in a column."""
    shown = [_shown(value) for _, value in rows[:_SHOWN_ROWS]]
    values = tuple("" if value in (None, "") else f"{column} {quoted(value)}" for value in shown)
    return Fault(rule=rule, rows=pl.Series(ROW, [row for row, _ in rows], dtype=pl.UInt32), values=values)


def _shown(value: object) -> object:
    return redact_uri(value) if isinstance(value, str) else value
