"""Names of the flow runs that a person starts."""

from __future__ import annotations

from datetime import UTC, datetime

from prefect.runtime import flow_run

from flows.run.names import run_name
from tasks.manifest.dataset import dataset_name


def name_of_current(kind: str) -> str:
    """Return the name of the current flow run, from its dataset and the time, in UTC."""
    parameters = flow_run.parameters
    at = flow_run.scheduled_start_time or datetime.now(UTC)
    return run_name(kind, parameters.get("dataset") or dataset_name(parameters["manifest"]), at.astimezone(UTC))
