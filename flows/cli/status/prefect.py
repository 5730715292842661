"""Reads schedules, waiting flow runs, workers and parameters of runs from Prefect."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowFilter,
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
from pydantic import ValidationError

from flows.run.names import NIGHTLY, TAG, WATCH, on_demand
from flows.run.request import QuestionOptions
from flows.schedule.lookup import find_deployment, next_date
from infra.program import command
from reelabel.text import on_one_line
from tasks.manifest.location import has_date_placeholders

_OF_SCHEDULES = frozenset({"timezone", "may_be_empty"})  # parameters for which commands have no use

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from uuid import UUID

    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun, State
    from prefect.client.schemas.responses import DeploymentResponse

    from tasks.results.overview import RunStatus

_WAITING = (StateType.SCHEDULED, StateType.PENDING, StateType.PAUSED)
_FAILURES = {StateType.FAILED, StateType.CRASHED}
_OURS = FlowRunFilterTags(all_=[TAG])
_PAGE = 200
_MINUTE = "%Y-%m-%d %H:%M %Z"


def waiting_runs(client: SyncPrefectClient) -> list[FlowRun]:
    """Read our flow runs that should have started, the longest-waiting first."""
    due = FlowRunFilterExpectedStartTime(before_=datetime.now(UTC))
    return client.read_flow_runs(
        flow_run_filter=FlowRunFilter(tags=_OURS, state=_state_in(_WAITING), expected_start_time=due),
        sort=FlowRunSort.EXPECTED_START_TIME_ASC,
    )


def running_workers(client: SyncPrefectClient) -> list[FlowRun]:
    """Read the running flow runs that extract or infer, whose names end with their host and process."""
    stages = FlowFilter(name=FlowFilterName(any_=["extract", "infer"]))
    running = FlowRunFilter(state=_state_in([StateType.RUNNING]))
    return client.read_flow_runs(flow_filter=stages, flow_run_filter=running, sort=FlowRunSort.EXPECTED_START_TIME_ASC)


def _state_in(types: Sequence[StateType]) -> FlowRunFilterState:
    return FlowRunFilterState(type=FlowRunFilterStateType(any_=list(types)))


def schedule_lines(client: SyncPrefectClient) -> Iterator[str]:
    """Describe the nightly schedule, its last run with the command that repairs it, and the watch."""
    nightly, watch = find_deployment(client, NIGHTLY), find_deployment(client, WATCH)
    if nightly is None or watch is None:
        yield f"Nothing is scheduled. To schedule runs: {command('deploy')} --manifest ..."
        return
    yield _next_run(nightly)
    last = _last_run(client, nightly)
    if last is not None and last.state is not None:
        yield f"Last scheduled run, {_outcome(last, last.state, nightly)}"
        if last.state.type in _FAILURES:
            yield f"    {_catch_up(last, nightly)}"
    manifests = watch.parameters.get("manifests")
    starts = on_demand(watch.parameters.get("starts") or "classify")
    yield f"Watch: on, for {manifests}; starts {starts}." if manifests and _is_on(watch) else "Watch: paused."


def _outcome(run: FlowRun, state: State[Any], deployment: DeploymentResponse) -> str:
    at = (run.expected_start_time or state.timestamp).astimezone(_zone(deployment))
    message = f": {on_one_line(state.message)}" if state.message else "."
    return f"{at:{_MINUTE}}: {state.name}{message}"


def _is_on(deployment: DeploymentResponse) -> bool:
    return not deployment.paused and any(each.active for each in deployment.schedules)


def _zone(deployment: DeploymentResponse) -> ZoneInfo:
    zones = [each.schedule.timezone for each in deployment.schedules if isinstance(each.schedule, CronSchedule)]
    return ZoneInfo(next(filter(None, zones), "UTC"))


def _next_run(nightly: DeploymentResponse) -> str:
    schedules = [each.schedule for each in nightly.schedules if each.active]
    dates = [] if nightly.paused else [date for each in schedules if (date := next_date(each))]
    if not dates:
        return "Next scheduled run: none, because classify/nightly is paused."
    at = min(dates).astimezone(_zone(nightly))
    return f"Next scheduled run, {at:{_MINUTE}}: {nightly.parameters.get('manifest', 'no manifest')}"


def _last_run(client: SyncPrefectClient, deployment: DeploymentResponse) -> FlowRun | None:
    due = FlowRunFilterExpectedStartTime(before_=datetime.now(UTC))
    found = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(expected_start_time=due),
        deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[deployment.id])),
        sort=FlowRunSort.EXPECTED_START_TIME_DESC,
        limit=_PAGE,
    )
    # A date may have several runs: the last one counts.
    return max(found, key=lambda run: (run.expected_start_time, _ended_at(run)), default=None)


def _ended_at(run: FlowRun) -> datetime:
    return run.end_time or (run.state.timestamp if run.state else datetime.now(UTC))


def _catch_up(run: FlowRun, nightly: DeploymentResponse) -> str:
    at = run.expected_start_time or _ended_at(run)
    day = str(at.astimezone(_zone(nightly)).date())
    return command("catch-up", since=day, until=day)


def repair_commands(client: SyncPrefectClient, runs: Sequence[RunStatus]) -> dict[UUID, str]:
    """Return the commands that repeat runs, by id, for those that Prefect still has."""
    if not runs:
        return {}
    rows, nightly = {run.run_id: run for run in runs}, find_deployment(client, NIGHTLY)
    known = client.read_flow_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[*rows])))
    return {
        run.id: _catch_up(run, nightly)
        if nightly is not None and run.deployment_id == nightly.id
        else repeat_command(rows[run.id].kind, run.parameters | _rendered(rows[run.id], run.parameters))
        for run in known
    }


def _rendered(row: RunStatus, parameters: Mapping[str, Any]) -> dict[str, str]:
    """Return the manifest and the dataset of a run's scheduled date; nothing if it has none."""
    is_dated = has_date_placeholders(parameters["manifest"])
    return {"manifest": row.manifest_uri, "dataset": row.dataset} if is_dated else {}


def repeat_command(kind: str, parameters: Mapping[str, Any]) -> str:
    """Return the command that starts a run again with the parameters of its flow run."""
    options = {name: value for name, value in parameters.items() if name not in _OF_SCHEDULES}
    with suppress(ValidationError):  # of another version
        # As a model, which also has flags for options that are turned off.
        options["overrides"] = QuestionOptions.model_validate(options.get("overrides") or {})
    if kind != "backfill":
        return command(kind, options.pop("manifest"), **options)
    ids_file = parameters.get("ids_file") or ""
    is_stored = "://" in ids_file  # the command reads only files of this machine
    repeated = command("backfill", **options | ({"ids_file": "ids.txt"} if is_stored else {}))
    return f"Save {ids_file} as ids.txt, then: {repeated}" if is_stored else repeated
