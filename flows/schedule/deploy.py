"""Deploying: the plan of all deployments, and its application."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectAlreadyExists

from flows.run.spec import require_model
from flows.schedule.automations import apply_automations
from flows.schedule.deployments import desired_deployments, plan_deployment
from flows.schedule.lookup import find_deployment
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from tasks.manifest.location import is_one_file, stat_manifest_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flows.schedule.deployments import DeploymentPlan
    from infra.settings import Settings
    from reelabel.errors import ReelabelError


def deploy_flows(
    settings: Settings,
    *,
    unpause: bool = False,
    dry_run: bool = False,
    own_worker: bool = False,
) -> list[DeploymentPlan]:
    """Create or update the deployments, their work pools and the automations; return what was done to each deployment.

    What the settings do not name stays as deployed; so do pauses and schedules that were turned off or removed in
    Prefect, unless `unpause` is set. Parameters hold no secrets: flow runs read these from the worker's environment.
    With `own_worker`, these settings are its own.

    Raises:
        ConfigurationError: A schedule or a placeholder is malformed; a nightly manifest is one file that does not
            exist; or, with `own_worker`, no model is named for what is scheduled. Nothing has been changed.
    """
    with get_client(sync_client=True) as client:
        types = {pool.name: pool.type for pool in client.read_work_pools()}
        desired = desired_deployments(settings, types)
        plans = [plan_deployment(each, find_deployment(client, each.full_name), unpause=unpause) for each in desired]
        for each in desired:
            _require_manifest(each.parameters, settings)
        for name, error in unnamed_models(plans, settings).items() if own_worker else ():
            raise ConfigurationError(f"{name} would fail each time: {error.message}")
        if not dry_run:
            for pool in {plan.pool for plan in plans} - types.keys():
                with suppress(ObjectAlreadyExists):
                    client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
            for plan in plans:
                plan.apply(client)
            apply_automations(client, settings)
        return plans


def unnamed_models(plans: Sequence[DeploymentPlan], settings: Settings) -> dict[str, ReelabelError]:
    """Return what is wrong with the deployments that run by a schedule, but for which no model is named."""
    found: dict[str, ReelabelError] = {}
    for plan in plans:
        flow = plan.name.partition("/")[0]
        starts = plan.parameters.get("starts", settings.watch.starts) if flow == "watch" else flow
        if plan.next_run:
            try:
                require_model(starts, plan.parameters, settings)
            except ConfigurationError as error:
                found[plan.name] = error
    return found


def _require_manifest(parameters: Mapping[str, Any], settings: Settings) -> None:
    manifest = parameters.get("manifest")
    if not manifest or parameters.get("may_be_empty") or not is_one_file(manifest):
        return
    if not stat_manifest_files(manifest, ObjectStore(settings.store, settings.web)):
        raise ConfigurationError(
            f"There is no manifest at {manifest}; correct its name, or deploy it with --may-be-empty if it appears "
            "later."
        )
