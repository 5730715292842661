"""The columns of a manifest, and what can be wrong with its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from reelabel.sources.object_info import INLINE_SCHEME, WEB_SCHEMES, redact_uri

if TYPE_CHECKING:
    from collections.abc import Sequence


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
}
COLUMNS = REQUIRED | OPTIONAL
# Additional column: a row's number in the manifest, from 0.
ROW = "row"

SCHEMES = ("s3", "file", *WEB_SCHEMES, INLINE_SCHEME)

REPLACED_BY_MESSAGES = frozenset({"video_uri", "prompt"})
# Columns that are copied to result rows; Postgres cannot store NUL.
STORED_TEXT = ("job_id", "answer", "task", "subtask")
# A Postgres index key must fit into a third of a page, together with dataset and spec.
LONGEST_ID_BYTES = 1024


_SHOWN_ROWS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A rule that some rows break.

    Attributes:
        rule: What is wrong, as a sentence.
        count: Number of rows that break it; 0 if it concerns the whole file.
        first_rows: Row numbers, from 0, and values of the first few.
    """

    rule: str
    count: int = 0
    first_rows: tuple[str, ...] = ()

    def __add__(self, later: Fault) -> Fault:
        """Merge with the same fault of later rows."""
        first = (*self.first_rows, *later.first_rows)[:_SHOWN_ROWS]
        return Fault(rule=self.rule, count=self.count + later.count, first_rows=first)

    def __str__(self) -> str:
        """Format with the count and the first rows."""
        if not self.count:
            return self.rule
        return f"{self.rule} {self.count:,} row{'s' * (self.count > 1)}, first {', '.join(self.first_rows)}."


def row_fault(rule: str, column: str, rows: Sequence[tuple[int, object]]) -> Fault:
    """Build the fault of rows, given their numbers and their values in a column."""
    first = tuple(f"row {row} ({column} {_shown(value)!r})" for row, value in rows[:_SHOWN_ROWS])
    return Fault(rule=rule, count=len(rows), first_rows=first)


def _shown(value: object) -> object:
    return redact_uri(value) if isinstance(value, str) else value
