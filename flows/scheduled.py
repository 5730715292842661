"""The scheduled date of a flow run, and names that contain it."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from uuid import UUID
from zoneinfo import ZoneInfo

from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from tasks.manifest.dates import fill_date_placeholders, has_date_placeholders


def render_scheduled(text: str, timezone: str) -> str:
    """Replace date placeholders with the date for which the current flow run was scheduled."""
    if not has_date_placeholders(text):
        return text
    return fill_date_placeholders(text, _first_scheduled(flow_run.id).astimezone(ZoneInfo(timezone)))


def scheduled_run_name() -> str:
    """Return the name of the current flow run, from its flow and manifest."""
    parameters = flow_run.parameters
    return f"{flow_run.flow_name}-{render_scheduled(parameters['manifest'], parameters.get('timezone') or 'UTC')}"


@lru_cache
def _first_scheduled(flow_run_id: str | None) -> datetime:
    """Return the time for which a flow run was first scheduled; now if it was started by hand.

    Its expected start time does not tell: it changes when a run is restarted, possibly after midnight.
    """
    if flow_run_id is None:
        return datetime.now(UTC)
    with get_client(sync_client=True) as client:
        states = client.read_flow_run_states(UUID(flow_run_id))
    first = min(states, key=lambda state: state.timestamp)
    return first.state_details.scheduled_time or first.timestamp
