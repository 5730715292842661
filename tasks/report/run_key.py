"""Whose rows a page shows, and where the files of a run are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy import ColumnElement, Connection, FromClause


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportKey:
    """The dataset and spec whose current labels and failures a report shows."""

    dataset: str
    spec_id: str

    def matches(self, table: FromClause) -> ColumnElement[bool]:
        """Return the condition that selects the rows of a table."""
        return (table.c.dataset == self.dataset) & (table.c.spec_id == self.spec_id)

    def count(self, connection: Connection, table: FromClause) -> int:
        """Count the rows of a table."""
        return connection.execute(select(func.count()).select_from(table).where(self.matches(table))).scalar_one()


def page_uri(store_uri: str, run_id: UUID) -> str:
    """Return the URI of a run's report in the store."""
    return f"{store_uri.rstrip('/')}/reports/{run_id}.html"


def rejected_uri(store_uri: str, run_id: UUID) -> str:
    """Return the URI of the list of rows that a run rejected."""
    return f"{store_uri.rstrip('/')}/reports/{run_id}.csv"


def page_link(base_url: str, run_id: UUID) -> str:
    """Return the web address of a run's report, if the store's folder `reports/` is served at `base_url`."""
    return f"{base_url.rstrip('/')}/{run_id}.html"
