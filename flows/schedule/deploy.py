"""The deployments: nightly, on arrival of a manifest, on demand, by job id, and others."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectAlreadyExists
from prefect.types.entrypoint import EntrypointType
from pydantic import ValidationError

from flows.backfill import backfill
from flows.classify import classify
from flows.evaluate import evaluate
from flows.extract import extract
from flows.infer import infer
from flows.maintain import maintain
from flows.run.names import PREFECT_VARIABLES, TAG
from flows.schedule.automations import apply_automations
from flows.watch import watch
from reelabel.errors import ConfigurationError
from reelabel.sources.object_info import absolute_uri
from reelabel.validation import first_fault
from tasks.manifest.location import check_date_placeholders

if TYPE_CHECKING:
    from infra.settings import Settings
    from infra.settings.schedule import NightlySettings, WatchSettings

_JOB_VARIABLES = {
    "env": {
        "PYTHONSAFEPATH": "1",  # a tasks.py in the working folder must not shadow our package
        **PREFECT_VARIABLES,
    }
}
_WHEN_RUNNING = {"queue": ConcurrencyLimitStrategy.ENQUEUE, "skip": ConcurrencyLimitStrategy.CANCEL_NEW}


def deploy_flows(settings: Settings) -> dict[str, str]:
    """Create or update the deployments, their work pools and the automations; return deployments with their pools.

    Their parameters hold no secrets: flow runs read these from the worker's environment.

    Raises:
        ConfigurationError: A schedule or a date placeholder is malformed; nothing has been created.
    """
    pools = settings.prefect
    planned: list[tuple[Any, str, dict[str, Any]]] = [
        (classify, "nightly", _nightly(settings.nightly)),
        (watch, "manifests", _watch(settings.watch)),
        (backfill, "by-ids", {}),
        (evaluate, "labelled", {}),
        (extract, "cpu", {"work_pool_name": pools.cpu_pool}),
        (infer, "gpu", {"work_pool_name": pools.gpu_pool}),
        (
            maintain,
            "daily",
            {"schedule": _schedule("retention", settings.retention.cron, "UTC"), "concurrency_limit": 1},
        ),
    ]
    for pool in (pools.work_pool, pools.cpu_pool, pools.gpu_pool):
        with get_client(sync_client=True) as client, contextlib.suppress(ObjectAlreadyExists):
            client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
    deployed = {}
    for flow, name, options in [(classify, "on-demand", _on_demand(settings)), *planned]:
        deployment = flow.to_deployment(
            name,
            entrypoint_type=EntrypointType.MODULE_PATH,
            job_variables=_JOB_VARIABLES,
            description=flow.description,
            tags=[TAG],
            **{"work_pool_name": pools.work_pool} | options,
        )
        deployment.apply()
        deployed[f"{flow.name}/{name}"] = str(deployment.work_pool_name)
    with get_client(sync_client=True) as client:
        apply_automations(client, settings)
    return deployed


def _on_demand(settings: Settings) -> dict[str, Any]:
    """Limit concurrent runs to the number of machines, since a local run uses all of its own."""
    with get_client(sync_client=True) as client:
        pool = client.read_work_pool(settings.prefect.work_pool)
    is_process = pool.type == "process"  # else each run has its own pod
    takes_machine = is_process and settings.run.executor == "local"
    return {"concurrency_limit": _at_once(settings.run.max_concurrent_runs, "queue") if takes_machine else None}


def _nightly(nightly: NightlySettings) -> dict[str, Any]:
    parameters: dict[str, Any] = {"timezone": nightly.timezone, "may_be_empty": nightly.may_be_empty}
    if nightly.manifest:
        parameters["manifest"] = check_date_placeholders(absolute_uri(nightly.manifest))
    if nightly.dataset:
        parameters["dataset"] = check_date_placeholders(nightly.dataset)
    return {
        "schedule": _schedule("nightly", nightly.cron, nightly.timezone),
        "paused": nightly.manifest is None,
        "parameters": parameters,
        "concurrency_limit": _at_once(1, nightly.when_running),
    }


def _watch(settings: WatchSettings) -> dict[str, Any]:
    parameters = {"manifests": absolute_uri(settings.manifests)} if settings.manifests else {}
    return {
        "schedule": _schedule("watch", settings.cron, "UTC"),
        "paused": settings.manifests is None,
        "parameters": parameters | ({"dataset": settings.dataset} if settings.dataset else {}),
        "concurrency_limit": _at_once(1, "skip"),
    }


def _at_once(limit: int, when_running: str) -> ConcurrencyLimitConfig:
    return ConcurrencyLimitConfig(limit=limit, collision_strategy=_WHEN_RUNNING[when_running])


def _schedule(section: str, cron: str, timezone: str) -> CronSchedule:
    try:
        return CronSchedule(cron=cron, timezone=timezone)
    except ValidationError as error:
        _, _, clause = first_fault(error)
        raise ConfigurationError(f"{section}.cron is invalid: {clause}.") from None
