"""What Prefect knows: the next and the last night, the watch, flow runs that failed, and those that wait."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowFilter,
    FlowFilterId,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
)
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.schedules import CronSchedule
from prefect.client.schemas.sorting import FlowRunSort
from prefect.server.schemas.schedules import CronSchedule as Calendar

from flows.cli.repeat import repeat_flow
from flows.run.flow_run import render_scheduled
from flows.run.names import NIGHTLY, TAG, WATCH, on_demand
from flows.schedule.lookup import find_deployment, list_flow_runs
from infra.program import command
from reelabel.text import on_one_line
from tasks.manifest.dataset import dataset_name, nightly_dataset
from tasks.manifest.location import has_date_placeholders
from tasks.results.repairs import Work

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun
    from prefect.client.schemas.responses import DeploymentResponse

_WAITING = (StateType.SCHEDULED, StateType.PENDING, StateType.PAUSED)
_BAD = (StateType.FAILED, StateType.CRASHED)
_OURS = FlowRunFilterTags(all_=[TAG])
_PAGE = 200
# Flow runs that are started by people or schedules; others are parts of these.
_FLOWS = ("classify", "describe", "backfill", "evaluate", "survey", "maintain", "watch")
# What Prefect puts before the message of an exception.
_NO_SENTENCE = re.compile(r"^Flow run encountered an exception: \w+: ")
_MINUTE = "%Y-%m-%d %H:%M %Z"


def waiting_runs(client: SyncPrefectClient) -> list[FlowRun]:
    """Read our flow runs that should have started, the one that waits longest first."""
    due = FlowRunFilterExpectedStartTime(before_=datetime.now(UTC))
    return client.read_flow_runs(
        flow_run_filter=FlowRunFilter(tags=_OURS, state=_in(_WAITING), expected_start_time=due),
        sort=FlowRunSort.EXPECTED_START_TIME_ASC,
    )


def running_workers(client: SyncPrefectClient) -> list[FlowRun]:
    """Read the running flow runs that extract or infer, whose names end with their host and process."""
    stages = FlowFilter(name=FlowFilterName(any_=["extract", "infer"]))
    running = FlowRunFilter(state=_in([StateType.RUNNING]))
    return client.read_flow_runs(flow_filter=stages, flow_run_filter=running, sort=FlowRunSort.EXPECTED_START_TIME_ASC)


def _in(types: Sequence[StateType]) -> FlowRunFilterState:
    return FlowRunFilterState(type=FlowRunFilterStateType(any_=list(types)))


def schedule_lines(client: SyncPrefectClient) -> Iterator[str]:
    """Describe the nightly schedule, its last night, and the watch, one sentence each."""
    nightly, watch = find_deployment(client, NIGHTLY), find_deployment(client, WATCH)
    if nightly is None or watch is None:
        yield f"Nothing is scheduled; to schedule runs: {command('deploy')} --manifest ..."
        return
    yield _next_night(nightly)
    last = _last_run(client, nightly)
    if last is not None and last.state is not None:
        at = (last.expected_start_time or last.state.timestamp).astimezone(_zone(nightly))
        said = f": {on_one_line(last.state.message)}" if last.state.message else "."
        yield f"Last night, {at:{_MINUTE}}: {last.state.name}{said}"
    manifests = watch.parameters.get("manifests")
    starts = on_demand(watch.parameters.get("starts") or "classify")
    yield f"Watch: on, for {manifests}; starts {starts}." if manifests and _is_on(watch) else "Watch: paused."


def _is_on(deployment: DeploymentResponse) -> bool:
    return not deployment.paused and any(each.active for each in deployment.schedules)


def _zone(deployment: DeploymentResponse) -> ZoneInfo:
    zones = [each.schedule.timezone for each in deployment.schedules if isinstance(each.schedule, CronSchedule)]
    return ZoneInfo(next(filter(None, zones), "UTC"))


def _next_night(nightly: DeploymentResponse) -> str:
    calendars = [
        Calendar(cron=each.schedule.cron, timezone=each.schedule.timezone, day_or=each.schedule.day_or)
        for each in nightly.schedules
        if each.active and isinstance(each.schedule, CronSchedule)
    ]
    if nightly.paused or not calendars:
        return "Next night: none, since classify/nightly is paused."
    dates = [asyncio.run(each.get_dates(n=1, start=datetime.now(UTC))) for each in calendars]
    at = min(date for some in dates for date in some).astimezone(_zone(nightly))
    return f"Next night, {at:{_MINUTE}}: {nightly.parameters.get('manifest', 'no manifest')}"


def _last_run(client: SyncPrefectClient, deployment: DeploymentResponse) -> FlowRun | None:
    due = FlowRunFilterExpectedStartTime(before_=datetime.now(UTC))
    found = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(expected_start_time=due),
        deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[deployment.id])),
        sort=FlowRunSort.EXPECTED_START_TIME_DESC,
        limit=_PAGE,
    )
    # A night may have several runs: the last one tells how it ended.
    return max(found, key=lambda run: (run.expected_start_time, _ended_at(run)), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A run that failed, crashed or was lost, and that no later one has made up for.

    Attributes:
        run_id: Its id, in Prefect and in the database.
        what: Its flow, and what it was about.
        at: When it was to start.
        state: How it ended.
        message: Why.
        repair: The command that repairs it, or a sentence on what to do; None if nothing is known.
        work: What it was to do; None if it is not a `classify` run.
    """

    run_id: UUID
    what: str
    at: datetime
    state: str
    message: str
    repair: str | None
    work: Work | None


def find_troubles(client: SyncPrefectClient, *, within: timedelta, lost: Sequence[UUID]) -> dict[UUID, Trouble | None]:
    """Find the flow runs of late that failed or crashed, and those that were lost, newest first, by their ids.

    Returns:
        A trouble, or None for a run that a later one has made up for.
    """
    flows = {flow.id: flow.name for flow in client.read_flows()}
    nightly = find_deployment(client, NIGHTLY)
    ours = [flow_id for flow_id, name in flows.items() if name in _FLOWS]
    bad = _newest_of_each([*_ended(client, _BAD, within, flows=ours), *_by_id(client, lost)])
    failed = list({run.flow_id for run in bad})
    good = _ended(client, (StateType.COMPLETED,), within, flows=failed) if failed else []
    return {
        run.id: None if any(_makes_up(later, run) for later in good) else _trouble(run, flows[run.flow_id], nightly)
        for run in bad
    }


def _newest_of_each(runs: Sequence[FlowRun]) -> list[FlowRun]:
    """Keep the newest run of each schedule that does the same every time, such as the watch of every minute."""
    kept: dict[object, FlowRun] = {}
    for run in runs:
        kept.setdefault(run.id if "manifest" in run.parameters else (run.flow_id, run.deployment_id), run)
    return list(kept.values())


def _by_id(client: SyncPrefectClient, run_ids: Sequence[UUID]) -> list[FlowRun]:
    wanted = FlowRunFilter(id=FlowRunFilterId(any_=list(run_ids)))
    return client.read_flow_runs(flow_run_filter=wanted) if run_ids else []


def _ended(
    client: SyncPrefectClient, types: Sequence[StateType], within: timedelta, *, flows: list[UUID]
) -> list[FlowRun]:
    of_late = FlowRunFilterExpectedStartTime(after_=datetime.now(UTC) - within)
    wanted = FlowRunFilter(tags=_OURS, state=_in(types), expected_start_time=of_late)
    return list_flow_runs(
        client,
        flow_run_filter=wanted,
        flow_filter=FlowFilter(id=FlowFilterId(any_=flows)),
        sort=FlowRunSort.EXPECTED_START_TIME_DESC,
    )


def _makes_up(later: FlowRun, run: FlowRun) -> bool:
    """Return whether a completed run did what one that failed should have done."""
    if later.flow_id != run.flow_id or _ended_at(later) < _ended_at(run):
        return False
    if "manifest" not in run.parameters or "jobs" in run.parameters:
        return later.parameters == run.parameters
    is_same_date = later.deployment_id == run.deployment_id and later.expected_start_time == run.expected_start_time
    work, other = (tuple(each.parameters.get(name) for name in ("manifest", "dataset")) for each in (run, later))
    return is_same_date or (work == other and not has_date_placeholders(str(work[0])))


def _ended_at(run: FlowRun) -> datetime:
    return run.end_time or (run.state.timestamp if run.state else datetime.now(UTC))


def _trouble(run: FlowRun, flow: str, nightly: DeploymentResponse | None) -> Trouble:
    assert run.state is not None
    about = run.parameters.get("dataset") or run.parameters.get("manifest") or run.parameters.get("manifests") or ""
    return Trouble(
        run_id=run.id,
        what=f"{flow} {about}".strip(),
        at=run.expected_start_time or run.state.timestamp,
        state=run.state.name.lower() if run.state.name else "failed",
        message=_NO_SENTENCE.sub("", run.state.message or ""),
        repair=_repair(run, flow, nightly),
        work=_work(run) if flow == "classify" else None,
    )


def _work(run: FlowRun) -> Work | None:
    manifest, timezone = run.parameters["manifest"], run.parameters.get("timezone") or "UTC"
    dataset = run.parameters.get("dataset") or nightly_dataset(manifest) or dataset_name(manifest)
    try:
        manifest, dataset = (render_scheduled(text, timezone, str(run.id)) for text in (manifest, dataset))
    except (ValueError, OSError, KeyError):  # a time zone or a format that does not exist: why it failed
        return None
    return Work(manifest_uri=manifest, dataset=dataset, since=run.start_time or _ended_at(run))


def _repair(run: FlowRun, flow: str, nightly: DeploymentResponse | None) -> str | None:
    if nightly is not None and run.deployment_id == nightly.id and run.expected_start_time is not None:
        day = str(run.expected_start_time.astimezone(_zone(nightly)).date())
        return command("catch-up", since=day, until=day)
    return repeat_flow(flow, run.parameters)
