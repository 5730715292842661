"""The time for which a flow run was scheduled, and texts that contain it."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from uuid import UUID
from zoneinfo import ZoneInfo

from prefect.client.orchestration import get_client

from tasks.manifest.location import fill_date_placeholders, has_date_placeholders


def render_scheduled(text: str, timezone: str, flow_run_id: str | None) -> str:
    """Replace date placeholders with the date for which a flow run was scheduled."""
    if not has_date_placeholders(text):
        return text
    return fill_date_placeholders(text, first_scheduled(flow_run_id).astimezone(ZoneInfo(timezone)))


@lru_cache
def first_scheduled(flow_run_id: str | None) -> datetime:
    """Return the time for which a flow run was first scheduled; now if it was started by hand.

    Its expected start time does not tell: it changes when a run is restarted, possibly after midnight.
    """
    if flow_run_id is None:
        return datetime.now(UTC)
    with get_client(sync_client=True) as client:
        states = client.read_flow_run_states(UUID(flow_run_id))
    first = min(states, key=lambda state: state.timestamp)
    return first.state_details.scheduled_time or first.timestamp
