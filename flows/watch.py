"""The flow `watch`: start a run for each new manifest."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from prefect import get_run_logger
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateName,
)
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run as current_run
from prefect.states import Completed

from flows.run.flow_run import ARRIVED, ERROR_SUFFIX, delete_flow_run
from flows.run.names import on_demand
from flows.run.request import Dataset, FlowRequest, Manifest
from flows.run.result import completed_state
from flows.run.run_flow import run_flow
from infra.database.connect import connected
from infra.errors import ManifestMissingError
from infra.settings import load_settings
from infra.settings.types import Started  # noqa: TC001 - pydantic reads it
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from reelabel.text import escape_controls, pluralize
from tasks.database.schema import prepare_database
from tasks.manifest.location import matching_files, stat_manifest_files
from tasks.results.runs import record_started, unstarted_manifests

if TYPE_CHECKING:
    from uuid import UUID

    from prefect import Flow, State
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun
    from sqlalchemy import Engine

    from reelabel.sources.object_store import ObjectInfo

# Limits the first scan of a prefix that is already full of manifests.
_MAX_AT_ONCE = 100
# Name of the state of a run that found nothing.
IDLE = "Idle"
_IDLE_RUNS = 200


def delete_idle_runs(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:  # noqa: ARG001 - a hook
    """Delete idle scheduled flow runs, and those that were skipped, which would flood the history.

    It is a hook of the completed run, and not the run's last step: its process still has to report its state.
    """
    if not flow_run.auto_scheduled or flow_run.deployment_id is None:
        return
    idle_runs = FlowRunFilter(state=FlowRunFilterState(name=FlowRunFilterStateName(any_=[IDLE, "Cancelled"])))
    this = DeploymentFilter(id=DeploymentFilterId(any_=[flow_run.deployment_id]))
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=idle_runs, deployment_filter=this, limit=_IDLE_RUNS):
            if run.auto_scheduled and run.id != flow_run.id:
                delete_flow_run(client, run)
        if state.name == IDLE:
            delete_flow_run(client, flow_run)


def watch_run_name() -> str:
    """Return the name of the current flow run, from the glob that it looks at."""
    return escape_controls(f"watch {current_run.parameters['manifests']}")


class WatchRequest(FlowRequest):
    """Parameters of `watch`."""

    manifests: Manifest
    """Glob of the manifests: s3://bucket/in/*.parquet, or a path."""
    dataset: Dataset = None
    """Dataset of their jobs; if empty, each manifest's file name."""
    starts: Started = "classify"
    """What is started: classify, which answers their questions, or describe, which needs none."""


@run_flow(WatchRequest, name=watch_run_name, on_completion=[delete_idle_runs])
def watch(request: WatchRequest) -> State[str]:
    """Start a run for each manifest that is new or has changed."""
    settings = load_settings()
    prepare_database(settings.database)
    with connected(settings.database) as engine, get_client(sync_client=True) as client:
        objects = ObjectStore(settings.store, settings.web)
        started = start_new_runs(
            client,
            engine,
            objects,
            manifests=request.manifests,
            dataset=request.dataset,
            starts=request.starts,
        )
    if not started:
        return Completed(name=IDLE, message="No new manifest.")
    for flow_run in started:
        get_run_logger().info("Started %s on %s.", flow_run.id, flow_run.parameters["manifest"])
    return completed_state(f"Started runs on {pluralize(len(started), 'new manifest')}.")


def start_new_runs(
    client: SyncPrefectClient,
    engine: Engine,
    objects: ObjectStore,
    *,
    manifests: str,
    dataset: str | None,
    starts: Started = "classify",
) -> list[FlowRun]:
    """Start a run for each manifest whose version had no run yet, oldest first.

    Concurrent calls start one run: Prefect recognises the second by its idempotency key. The row remains when
    Prefect has forgotten the flow run.

    Raises:
        ConfigurationError: A manifest may not be read, or its name is not UTF-8; runs on the others were started.
    """
    listed, refused = _stat_each(manifests, objects)
    found = sorted(listed, key=lambda info: (info.modified is not None, info.modified))
    started: list[FlowRun] = []
    for info, before in unstarted_manifests(engine, found)[:_MAX_AT_ONCE]:
        start = partial(_start, client, on_demand(starts), info, dataset)
        flow_run = start(after=before)
        # It may have ended long ago, if the database was restored from a backup that does not know of it.
        while flow_run.state and flow_run.state.is_final() and unstarted_manifests(engine, [info]):
            flow_run = start(after=flow_run.id)
        record_started(engine, info, flow_run.id)
        started.append(flow_run)
    if refused:
        raise refused[0]
    return started


def _stat_each(manifests: str, objects: ObjectStore) -> tuple[list[ObjectInfo], list[ConfigurationError]]:
    """Stat the manifests, and return with them the errors of those that cannot be used."""
    try:
        files = [manifests] if objects.local_path(manifests) is None else matching_files(manifests, objects)
    except ManifestMissingError:
        return [], []
    found: list[ObjectInfo] = []
    refused: list[ConfigurationError] = []
    for file in files:
        try:
            found += stat_manifest_files(file, objects)
        except ConfigurationError as error:
            refused.append(error)
    return [info for info in found if not info.uri.endswith(ERROR_SUFFIX)], refused


def _start(
    client: SyncPrefectClient, name: str, manifest: ObjectInfo, dataset: str | None, *, after: UUID | None
) -> FlowRun:
    """Start a run for a version of a manifest; if there is one that was started after the same run, return that."""
    try:
        deployment = client.read_deployment_by_name(name)
    except ObjectNotFound:
        raise ConfigurationError(f"Deployment {name} does not exist; create it with `reelabel deploy`.") from None
    version = f"arrival {manifest.uri} {manifest.fingerprint}"
    return client.create_flow_run_from_deployment(
        deployment.id,
        parameters={"manifest": manifest.uri, "dataset": dataset},
        tags=[ARRIVED],
        # A version may return after another one: the flow run in between makes its key distinct.
        idempotency_key=f"{version} after {after}" if after else version,
    )
