"""The flow that starts a run for each new manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefect import State, flow, get_run_logger
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound

from flows.ending import completed
from flows.names import ON_DEMAND
from flows.parameters import Dataset, Manifest
from infra.database import connect
from infra.errors import ConfigurationError
from infra.objects import ObjectStore
from infra.settings import load_settings
from infra.wording import counted
from tasks.manifest.match import find_manifests
from tasks.results.arrivals import record_started, unstarted
from tasks.results.schema import prepare_database

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun
    from sqlalchemy import Engine

# A prefix that is full of manifests when it is first looked at keeps no look from ending.
_MOST_AT_ONCE = 100


@flow(
    name="watch",
    description="Start a run for each manifest that is new, or has another content than before.",
    flow_run_name="watch-{manifests}",
)
def watch(manifests: Manifest, dataset: Dataset = None) -> State[str]:
    """Start a run for each manifest that is new, or has another content than before.

    Args:
        manifests: Glob of the manifests to look for: s3://bucket/in/*.parquet, or a path.
        dataset: Dataset of their jobs; empty is each manifest's file name.
    """
    settings = load_settings()
    prepare_database(settings.database)
    engine = connect(settings.database)
    try:
        with get_client(sync_client=True) as client:
            objects = ObjectStore(settings.store, settings.web)
            started = start_arrived(client, engine, objects, manifests=manifests, dataset=dataset)
    finally:
        engine.dispose()
    for flow_run in started:
        get_run_logger().info("Started %s on %s.", flow_run.id, flow_run.parameters["manifest"])
    return completed(f"{counted(len(started), 'new manifest')} started.")


def start_arrived(
    client: SyncPrefectClient, engine: Engine, objects: ObjectStore, *, manifests: str, dataset: str | None
) -> list[FlowRun]:
    """Start a run for each manifest whose last one was of another version, or that had none, the oldest first.

    Two who look at once start it once: Prefect knows the second one's flow run by its key. The row is
    for the time when Prefect has forgotten the flow run.

    Raises:
        ConfigurationError: There is no deployment to start.
    """
    found = sorted(find_manifests(manifests, objects), key=lambda info: (info.modified is not None, info.modified))
    started = []
    for info, flow_run_before in unstarted(engine, found)[:_MOST_AT_ONCE]:
        version = f"{info.uri} {info.fingerprint}"
        try:
            deployment = client.read_deployment_by_name(ON_DEMAND)
        except ObjectNotFound:
            raise ConfigurationError(f"There is no deployment {ON_DEMAND}; `reelabel deploy` makes it.") from None
        flow_run = client.create_flow_run_from_deployment(
            deployment.id,
            parameters={"manifest": info.uri, "dataset": dataset},
            # A version may be back after another one: then the flow run before tells the two starts apart.
            idempotency_key=f"arrival {version} after {flow_run_before}" if flow_run_before else f"arrival {version}",
        )
        record_started(engine, info, flow_run.id)
        started.append(flow_run)
    return started
