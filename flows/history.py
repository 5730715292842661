"""Retention of Prefect's history of our flow runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterEndTime, FlowRunFilterTags

from flows.names import TAG

if TYPE_CHECKING:
    from datetime import datetime

    from prefect.client.orchestration import SyncPrefectClient

_PAGE = 200


def remove_flow_runs(client: SyncPrefectClient, *, ended_before: datetime, dry_run: bool = False) -> int:
    """Remove our flow runs that ended before a given time, with their logs; return their number.

    Other flow runs on the same server are kept. What our runs did is recorded in Postgres.
    """
    old = FlowRunFilter(
        tags=FlowRunFilterTags(all_=[TAG]),
        end_time=FlowRunFilterEndTime(before_=ended_before),
    )
    found = 0
    while True:
        page = client.read_flow_runs(flow_run_filter=old, limit=_PAGE, offset=found if dry_run else 0)
        found += len(page)
        if not dry_run:
            for flow_run in page:
                client.delete_flow_run(flow_run.id)
        if len(page) < _PAGE:
            return found
