"""The scope of a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, FromClause


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportKey:
    """The dataset and spec whose current labels and failures a report shows."""

    dataset: str
    spec_id: str

    def matches(self, table: FromClause) -> ColumnElement[bool]:
        """Return the condition that selects the rows of a table."""
        return (table.c.dataset == self.dataset) & (table.c.spec_id == self.spec_id)
