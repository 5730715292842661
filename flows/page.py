"""The report page that a run writes to the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefect import get_run_logger

from infra.errors import ReelabelError
from infra.objects import ObjectStore
from tasks.report.place import page_link, page_uri
from tasks.results.runs import read_run

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy import Engine

    from infra.settings import Settings


def write_report_page(database: Engine, run_id: UUID, settings: Settings) -> str | None:
    """Write the report page of a run that has ended, unless `report.at_end` is off.

    Errors are logged, since a report must not fail its run.

    Returns:
        URL of the page; None if it was not written, or `report.base_url` is not set.
    """
    # Imported late: rendering and scoring take longer to import than most of what a run needs before.
    from tasks.report.page import render  # noqa: PLC0415
    from tasks.report.report import gather  # noqa: PLC0415

    store_uri = settings.store.uri
    if not settings.report.at_end or store_uri is None:
        return None
    objects, uri = ObjectStore(settings.store, settings.web), page_uri(store_uri, run_id)
    try:
        row = read_run(database, run_id)
        if row is None:
            return None
        objects.replace(uri, render(gather(database, objects, row, store_uri=store_uri)).encode())
    except Exception as error:  # noqa: BLE001 - the run itself has succeeded
        why = error.message if isinstance(error, ReelabelError) else f"{type(error).__name__}: {error}"
        get_run_logger().warning("Report not written: %s To try again: reelabel report %s", why, run_id)
        return None
    get_run_logger().info("Report written to %s", uri)
    return page_link(settings.report.base_url, run_id) if settings.report.base_url else None
