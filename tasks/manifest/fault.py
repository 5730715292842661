"""A fault of a manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reelabel.sources.uri import redact_uri

if TYPE_CHECKING:
    from collections.abc import Sequence

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
