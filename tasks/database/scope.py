"""The key of current rows: each job of a dataset has one under a spec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, FromClause, RowMapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The current rows of a dataset under a spec."""

    dataset: str
    spec_id: str

    @classmethod
    def of(cls, run: RowMapping) -> Scope:
        return Scope(dataset=run["dataset"], spec_id=run["spec_id"])

    @property
    def key(self) -> dict[str, str]:
        return {"dataset": self.dataset, "spec_id": self.spec_id}

    def matches(self, table: FromClause) -> ColumnElement[bool]:
        return (table.c.dataset == self.dataset) & (table.c.spec_id == self.spec_id)

    def count(self, connection: Connection, table: FromClause) -> int:
        return connection.execute(select(func.count()).select_from(table).where(self.matches(table))).scalar_one()
