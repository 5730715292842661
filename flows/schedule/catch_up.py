"""Missed runs of the schedule: find them in the database, and start them in order."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Literal
from zoneinfo import ZoneInfo

from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterExpectedStartTime,
)
from prefect.client.schemas.schedules import CronSchedule
from prefect.states import Scheduled

from flows.run.flow_run import list_flow_runs
from flows.run.names import NIGHTLY
from flows.schedule.deployments import our_schedule
from flows.schedule.lookup import dates_of, find_deployment
from reelabel.errors import ConfigurationError
from tasks.manifest.location import fill_date_placeholders, stat_manifest_files
from tasks.results.runs import run_states

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun
    from prefect.client.schemas.responses import DeploymentResponse
    from sqlalchemy import Engine

    from reelabel.sources.object_store import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledRun:
    """One date of the schedule.

    Attributes:
        at: Scheduled start, in the schedule's time zone.
        manifest: Manifest of that date.
        state: `finished` or `running` by the rows of the manifest's runs, `waiting` for a worker, `empty` if
            there is no manifest, otherwise `missed`.
        attempts: Number of ended flow runs of that date.
        keep_going: Whether its run leaves out invalid rows instead of failing.
    """

    at: datetime
    manifest: str
    state: Literal["finished", "running", "waiting", "empty", "missed"]
    attempts: int
    keep_going: bool = False


def find_scheduled_runs(
    client: SyncPrefectClient, engine: Engine, objects: ObjectStore, *, since: date, until: date | None
) -> list[ScheduledRun]:
    """Return the state of every date of the nightly schedule, from `since` to `until`, or to today.

    Days are in the schedule's time zone. If the manifest has the same name every day, only the last date is returned:
    its run covers the earlier ones.

    Raises:
        ConfigurationError: There is no schedule, or it has no manifest.
    """
    deployment, schedule = _nightly(client)
    zone = ZoneInfo(schedule.timezone or "UTC")
    now = datetime.now(zone)
    end = now if until is None else min(now, datetime.combine(until, time.max, zone))
    dates = _dates(schedule, datetime.combine(since, time(), zone), end)
    named, of_runs = deployment.parameters["manifest"], ZoneInfo(deployment.parameters.get("timezone") or "UTC")
    # Keeps the last date of each manifest.
    planned = {fill_date_placeholders(named, at.astimezone(of_runs)): at for at in dates}
    flow_runs = _flow_runs(client, deployment, dates)
    scheduled = []
    for manifest, at in planned.items():
        # In UTC: Python takes no time within the hour that is repeated when clocks go back for equal to one of another
        # zone.
        of_date = [run for run in flow_runs if run.expected_start_time == at.astimezone(UTC)]
        state = _state(engine, objects, manifest, at=at, flow_runs=of_date)
        ended = sum(run.state is not None and run.state.is_final() for run in of_date)
        keep_going = bool(deployment.parameters.get("keep_going"))
        scheduled.append(ScheduledRun(at=at, manifest=manifest, state=state, attempts=ended, keep_going=keep_going))
    return scheduled


def start_scheduled_run(client: SyncPrefectClient, run: ScheduledRun) -> FlowRun:
    """Start a missed run as its schedule would have; repeated calls return the same flow run."""
    deployment, _ = _nightly(client)
    return client.create_flow_run_from_deployment(
        deployment.id,
        state=Scheduled(scheduled_time=run.at),
        idempotency_key=f"catch-up {deployment.id} {run.at.isoformat()} {run.attempts}",
    )


def _nightly(client: SyncPrefectClient) -> tuple[DeploymentResponse, CronSchedule]:
    deployment = find_deployment(client, NIGHTLY)
    own_schedule = our_schedule(deployment) if deployment else None
    schedule = own_schedule.schedule if own_schedule else None
    if deployment is None or not isinstance(schedule, CronSchedule) or "manifest" not in deployment.parameters:
        raise ConfigurationError(
            f"{NIGHTLY} has no schedule with a manifest; set them with `reelabel deploy --manifest ...`."
        )
    return deployment, schedule


def _dates(schedule: CronSchedule, start: datetime, end: datetime) -> list[datetime]:
    found: list[datetime] = []
    while start <= end and (some := dates_of(schedule, start, end=end)):
        found += some
        start = found[-1] + timedelta(seconds=1)
    return found


def _flow_runs(client: SyncPrefectClient, deployment: DeploymentResponse, dates: Sequence[datetime]) -> list[FlowRun]:
    if not dates:
        return []
    between = FlowRunFilterExpectedStartTime(after_=dates[0], before_=dates[-1])
    return list_flow_runs(
        client,
        flow_run_filter=FlowRunFilter(expected_start_time=between),
        deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[deployment.id])),
    )


def _state(
    engine: Engine, objects: ObjectStore, manifest: str, *, at: datetime, flow_runs: Sequence[FlowRun]
) -> Literal["finished", "running", "waiting", "empty", "missed"]:
    states = run_states(engine, manifest, since=at)
    if "done" in states:
        return "finished"
    if "running" in states:
        return "running"
    if any(run.state is None or not run.state.is_final() for run in flow_runs):
        return "waiting"
    return "missed" if stat_manifest_files(manifest, objects) else "empty"
