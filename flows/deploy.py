"""The deployments: what runs by schedule, from the Prefect UI, and by job id."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectAlreadyExists
from prefect.types.entrypoint import EntrypointType
from pydantic import ValidationError

from flows.backfill import backfill
from flows.classify import classify
from infra.errors import ConfigurationError
from infra.uri import absolute_uri

if TYPE_CHECKING:
    from infra.settings import Settings

# A stranger's tasks.py in the working folder must not shadow ours.
_JOB_VARIABLES = {"env": {"PYTHONSAFEPATH": "1"}}


def deploy_flows(settings: Settings) -> list[str]:
    """Create or update the deployments and their work pool; gives their names.

    Secrets are not among their parameters: flow runs find them in the worker's environment.

    Raises:
        ConfigurationError: The schedule cannot be read; nothing was created.
    """
    nightly = settings.nightly
    try:
        schedule = CronSchedule(cron=nightly.cron, timezone=nightly.timezone)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigurationError(f"nightly.cron is wrong: {reason}.") from None
    pool = settings.prefect.work_pool
    with get_client(sync_client=True) as client, contextlib.suppress(ObjectAlreadyExists):
        client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
    planned: list[tuple[Any, str, dict[str, Any]]] = [
        (classify, "on-demand", {"tags": ["reelabel"]}),
        (
            classify,
            "nightly",
            {
                "schedule": schedule,
                "paused": nightly.manifest is None,
                "parameters": {"manifest": absolute_uri(nightly.manifest)} if nightly.manifest else {},
                "concurrency_limit": 1,
                "tags": ["reelabel"],
            },
        ),
        (backfill, "by-ids", {"tags": ["reelabel"]}),
    ]
    names = []
    for flow, name, options in planned:
        deployment = flow.to_deployment(
            name,
            entrypoint_type=EntrypointType.MODULE_PATH,
            work_pool_name=pool,
            job_variables=_JOB_VARIABLES,
            description=flow.description,
            **options,
        )
        deployment.apply()
        names.append(f"{flow.name}/{name}")
    return names
