"""Where a run leaves its page, and where a browser finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID


def page_uri(store_uri: str, run_id: UUID) -> str:
    """Name a run's page on the store."""
    return f"{store_uri.rstrip('/')}/reports/{run_id}.html"


def page_link(base_url: str, run_id: UUID) -> str:
    """Name a run's page as a browser opens it, where the store's folder `reports/` is served at `base_url`."""
    return f"{base_url.rstrip('/')}/{run_id}.html"
