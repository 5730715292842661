"""Where the page of a run and its list of rejected rows are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID


def page_uri(store_uri: str, run_id: UUID) -> str:
    """Return the URI of a run's report in the store."""
    return f"{store_uri.rstrip('/')}/reports/{run_id}.html"


def rejected_uri(store_uri: str, run_id: UUID) -> str:
    """Return the URI of the list of rows that a run rejected."""
    return f"{store_uri.rstrip('/')}/reports/{run_id}.csv"


def page_link(base_url: str, run_id: UUID) -> str:
    """Return the web address of a run's report, if the store's folder `reports/` is served at `base_url`."""
    return f"{base_url.rstrip('/')}/{run_id}.html"
