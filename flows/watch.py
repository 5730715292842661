"""The flow `watch`: start a run for each new manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefect import State, flow, get_run_logger
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound

from flows.run.names import ON_DEMAND, manifest_run_name
from flows.run.parameters import Dataset, Manifest
from flows.run.result import completed_state
from infra.database.connect import connect
from infra.settings import load_settings
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from reelabel.wording import pluralize
from tasks.database.schema import prepare_database
from tasks.manifest.location import stat_manifest_files
from tasks.results.arrivals import record_started, unstarted_manifests

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun
    from sqlalchemy import Engine

# Limits the first scan of a prefix that is already full of manifests.
_MAX_AT_ONCE = 100


@flow(
    name="watch",
    description="Start a run for each manifest that is new or has changed.",
    flow_run_name=manifest_run_name,
)
def watch(manifests: Manifest, dataset: Dataset = None) -> State[str]:
    """Start a run for each manifest that is new or has changed.

    Args:
        manifests: Glob of the manifests: s3://bucket/in/*.parquet, or a path.
        dataset: Dataset of their jobs; if empty, each manifest's file name.
    """
    settings = load_settings()
    prepare_database(settings.database)
    engine = connect(settings.database)
    try:
        with get_client(sync_client=True) as client:
            objects = ObjectStore(settings.store, settings.web)
            started = start_new_runs(client, engine, objects, manifests=manifests, dataset=dataset)
    finally:
        engine.dispose()
    for flow_run in started:
        get_run_logger().info("Started %s on %s.", flow_run.id, flow_run.parameters["manifest"])
    return completed_state(f"Started runs on {pluralize(len(started), 'new manifest')}.")


def start_new_runs(
    client: SyncPrefectClient, engine: Engine, objects: ObjectStore, *, manifests: str, dataset: str | None
) -> list[FlowRun]:
    """Start a run for each manifest without a run on its current version, oldest first.

    Concurrent calls start one run: Prefect recognizes the second by its idempotency key. The row remains when
    Prefect has forgotten the flow run.

    Raises:
        ConfigurationError: The deployment does not exist.
    """
    found = sorted(stat_manifest_files(manifests, objects), key=lambda info: (info.modified is not None, info.modified))
    started = []
    for info, flow_run_before in unstarted_manifests(engine, found)[:_MAX_AT_ONCE]:
        version = f"{info.uri} {info.fingerprint}"
        try:
            deployment = client.read_deployment_by_name(ON_DEMAND)
        except ObjectNotFound:
            raise ConfigurationError(
                f"Deployment {ON_DEMAND} does not exist; create it with `reelabel deploy`."
            ) from None
        flow_run = client.create_flow_run_from_deployment(
            deployment.id,
            parameters={"manifest": info.uri, "dataset": dataset},
            # A version may return after another one: the flow run in between makes its key distinct.
            idempotency_key=f"arrival {version} after {flow_run_before}" if flow_run_before else f"arrival {version}",
        )
        record_started(engine, info, flow_run.id)
        started.append(flow_run)
    return started
