"""The current flow run of Prefect: its scheduled date, its name, and the error file of a manifest that arrived."""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from prefect import get_run_logger
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run

from flows.run.names import run_name
from infra.database.connect import connected
from infra.errors import ManifestError
from infra.settings import load_settings
from reelabel.errors import ReelabelError
from reelabel.sources.object_store import ObjectStore
from tasks.manifest.location import dataset_name, fill_date_placeholders, has_date_placeholders, nightly_dataset
from tasks.plans.plan import plan_dataset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

    from flows.run.request import ManifestRequest
    from infra.settings import Settings

    Scheduled = TypeVar("Scheduled", bound=ManifestRequest)

# Tag of a flow run that was started because its manifest arrived.
ARRIVED = "arrived"
ERROR_SUFFIX = ".error.txt"
_PAGE = 200


def render_request(request: Scheduled, flow_run_id: str | None) -> Scheduled:
    """Replace date placeholders in a request's manifest and dataset with the date for which a flow run was scheduled.

    Args:
        request: The request; without a dataset, one for each date is derived from a manifest with placeholders.
        flow_run_id: The flow run; None is one that is started now.
    """
    dataset, timezone = request.dataset or nightly_dataset(request.manifest), request.timezone
    rendered = {
        "manifest": render_scheduled(request.manifest, timezone, flow_run_id),
        "dataset": render_scheduled(dataset, timezone, flow_run_id) if dataset else None,
    }
    return request.model_copy(update=rendered)


def render_scheduled(text: str, timezone: str, flow_run_id: str | None) -> str:
    """Replace date placeholders with the date for which a flow run was scheduled."""
    if not has_date_placeholders(text):
        return text
    return fill_date_placeholders(text, first_scheduled(flow_run_id).astimezone(ZoneInfo(timezone)))


@lru_cache
def first_scheduled(flow_run_id: str | None) -> datetime:
    """Return the time for which a flow run was first scheduled; now if it was started by hand.

    Its expected start time changes when it is restarted, possibly after midnight.
    """
    if flow_run_id is None:
        return datetime.now(UTC)
    with get_client(sync_client=True) as client:
        states = client.read_flow_run_states(UUID(flow_run_id))
    first = min(states, key=lambda state: state.timestamp)
    return first.state_details.scheduled_time or first.timestamp


def name_of_current(kind: str) -> str:
    """Return the name of the current flow run, from its dataset, if it has one, and the time, in UTC."""
    parameters = flow_run.parameters
    manifest = parameters.get("manifest")
    return run_name(kind, parameters.get("dataset") or (dataset_name(manifest) if manifest else ""), _started_at())


def scheduled_run_name(kind: str) -> str:
    """Return the name of the current flow run of a kind, from its dataset and the time for which it was scheduled."""
    parameters = flow_run.parameters
    manifest, timezone = parameters["manifest"], parameters.get("timezone") or "UTC"
    dataset = parameters.get("dataset") or nightly_dataset(manifest) or dataset_name(manifest)
    at = first_scheduled(flow_run.id)
    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # the run fails with the reason
        return run_name(kind, dataset, at)
    return run_name(kind, render_scheduled(dataset, timezone, flow_run.id), at.astimezone(zone))


def name_of_worker(stage: str) -> str:
    """Return the name of the current run of a stage: `infer animals 2026-11-01 02:00 node-7/4312`, its process last."""
    plan = flow_run.parameters.get("plan")
    about = _dataset_of(plan) or f"plan {plan}" if plan else "every plan"
    return run_name(stage, about, _started_at(), where=f"{socket.gethostname()}/{os.getpid()}")


def list_flow_runs(client: SyncPrefectClient, **filters: Any) -> list[FlowRun]:  # noqa: ANN401 - Prefect's own filters
    """List all flow runs that match the filters of `read_flow_runs`, which returns them in pages."""
    found: list[FlowRun] = []
    while True:
        page = client.read_flow_runs(**filters, limit=_PAGE, offset=len(found))
        found += page
        if len(page) < _PAGE:
            return found


def delete_flow_run(client: SyncPrefectClient, run: FlowRun) -> None:
    """Delete a flow run, unless another process has done so."""
    with suppress(ObjectNotFound):
        client.delete_flow_run(run.id)


def _started_at() -> datetime:
    return (flow_run.scheduled_start_time or datetime.now(UTC)).astimezone(UTC)


def _dataset_of(plan: str) -> str | None:
    with suppress(ReelabelError, ValueError), connected(load_settings().database) as database:
        return plan_dataset(database, UUID(plan))
    return None


@contextmanager
def write_error_file(manifest: str, settings: Settings) -> Iterator[None]:
    """Write the errors of a manifest that arrived to NAME.error.txt; delete the file when it validates.

    Whoever puts manifests in a folder may not see Prefect.
    """
    if ARRIVED not in (flow_run.tags or ()):
        yield
        return
    objects, uri = ObjectStore(settings.store, settings.web), manifest + ERROR_SUFFIX
    try:
        yield
    except ManifestError as error:
        try:
            objects.replace(uri, f"{error.message}\n".encode())
        except ReelabelError as refused:
            get_run_logger().warning("%s was not written: %s", uri, refused)
        raise
    with suppress(ReelabelError):  # there is none, or this login may only read manifests
        objects.stat(uri)
        objects.remove(uri)
