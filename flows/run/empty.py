"""Nights without a manifest: one may be empty, several in a row are a failure."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING
from uuid import UUID

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
from reelabel.wording import printable

if TYPE_CHECKING:
    from datetime import datetime

    from prefect import State
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

# Tag of a flow run that found no manifest.
_EMPTY = "empty"
_MAX_EMPTY = 2
_LOOKED_AT = 200


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
