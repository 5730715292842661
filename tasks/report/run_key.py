"""Whose rows a page shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, FromClause


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The labels and failures that stand for one dataset by one way of asking."""

    dataset: str
    spec_id: str

    def of(self, table: FromClause) -> ColumnElement[bool]:
        """Match a table's rows."""
        return (table.c.dataset == self.dataset) & (table.c.spec_id == self.spec_id)
