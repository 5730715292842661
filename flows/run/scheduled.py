"""Scheduled runs: the time for which one was scheduled, and how it ends if it finds no manifest."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING
from uuid import UUID
from zoneinfo import ZoneInfo

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.runtime import flow_run
from prefect.states import Failed

from flows.run.result import completed_state
from infra.errors import ManifestMissingError
from reelabel.text import printable
from tasks.manifest.dataset import nightly_dataset
from tasks.manifest.location import fill_date_placeholders, has_date_placeholders

if TYPE_CHECKING:
    from prefect import State
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

    from flows.run.request import RunRequest

# Tag of a flow run that found no manifest.
_EMPTY = "empty"
_MAX_EMPTY = 2
_LOOKED_AT = 200


def render_request(request: RunRequest, timezone: str, flow_run_id: str | None) -> RunRequest:
    """Replace date placeholders in a request's manifest and dataset with the date for which a flow run was scheduled.

    Args:
        request: The request; without a dataset, one for each date is derived from a manifest with placeholders.
        timezone: Time zone of the date.
        flow_run_id: The flow run; None is one that is started now.
    """
    dataset = request.dataset or nightly_dataset(request.manifest)
    return replace(
        request,
        manifest=render_scheduled(request.manifest, timezone, flow_run_id),
        dataset=render_scheduled(dataset, timezone, flow_run_id) if dataset else None,
    )


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


def empty_night(error: ManifestMissingError) -> State[str]:
    """End the current flow run, which has no manifest: Completed, or Failed if the two before had none either."""
    nights: list[datetime] = []
    if flow_run.id:
        with get_client(sync_client=True) as client:
            run = client.read_flow_run(UUID(flow_run.id))
            client.update_flow_run(run.id, tags={*run.tags, _EMPTY})
            nights = _empty_before(client, run)
    if len(nights) < _MAX_EMPTY:
        return completed_state(f"Nothing to do: {error.message}")
    told = ManifestMissingError(
        f"There was no manifest for {len(nights) + 1} nights in a row, since {min(nights):%Y-%m-%d}: {error.message}"
    )
    return Failed(message=printable(told.message), data=told)


def _empty_before(client: SyncPrefectClient, run: FlowRun) -> list[datetime]:
    """Return the scheduled times of the empty runs of a deployment between its last other one and this one."""
    if run.deployment_id is None:
        return []
    ended = FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.COMPLETED, StateType.FAILED]))
    before = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(state=ended),
        deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[run.deployment_id])),
        sort=FlowRunSort.EXPECTED_START_TIME_DESC,
        limit=_LOOKED_AT,
    )
    nights: set[datetime] = set()
    for other in before:
        if other.expected_start_time is None or other.id == run.id:
            continue
        if run.expected_start_time and other.expected_start_time >= run.expected_start_time:
            continue
        if _EMPTY not in other.tags:
            break
        nights.add(other.expected_start_time.astimezone(UTC))
    return sorted(nights)
