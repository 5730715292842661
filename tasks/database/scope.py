"""Whose rows: each job of a dataset has one current row under a spec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, FromClause, RowMapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The current rows of a dataset under a spec.

    Attributes:
        dataset: The dataset, in which job ids are unique.
    """

    dataset: str
    spec_id: str

    @classmethod
    def of(cls, run: RowMapping) -> Scope:
        """Return the scope of a run, by its row."""
        return Scope(dataset=run["dataset"], spec_id=run["spec_id"])

    @property
    def key(self) -> dict[str, str]:
        """The values of both columns, by name."""
        return {"dataset": self.dataset, "spec_id": self.spec_id}

    def matches(self, table: FromClause) -> ColumnElement[bool]:
        """Return the condition that selects its rows of a table."""
        return (table.c.dataset == self.dataset) & (table.c.spec_id == self.spec_id)

    def count(self, connection: Connection, table: FromClause) -> int:
        """Count its rows of a table."""
        return connection.execute(select(func.count()).select_from(table).where(self.matches(table))).scalar_one()
