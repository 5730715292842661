"""Names of flow runs, by which a person tells them apart."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from datetime import UTC, datetime
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from prefect.runtime import flow_run

from flows.run.names import run_name
from flows.run.scheduled import first_scheduled, render_scheduled
from infra.database.connect import connected
from infra.settings import load_settings
from reelabel.errors import ReelabelError
from tasks.manifest.dataset import dataset_name, nightly_dataset
from tasks.plans.plan import plan_dataset


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


def _started_at() -> datetime:
    return (flow_run.scheduled_start_time or datetime.now(UTC)).astimezone(UTC)


def _dataset_of(plan: str) -> str | None:
    """Return the dataset of a plan; None if it is unknown, which the run itself reports."""
    with suppress(ReelabelError, ValueError), connected(load_settings().database) as database:
        return plan_dataset(database, UUID(plan))
    return None
