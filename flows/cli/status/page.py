"""The page of `reelabel status`."""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.live import Live

from flows.cli.console import OUT, cell, make_table
from flows.cli.context import prefect_ready
from flows.cli.options import example
from infra.database.connect import Role, connected
from infra.embedded import ServiceName, missing_services, with_running_services
from infra.embedded import status as service_status
from infra.program import command
from infra.settings import load_settings
from reelabel.errors import ConfigurationError, ReelabelError
from reelabel.text import on_one_line
from tasks.database.schema import check_schema
from tasks.live.record.saved import list_unended
from tasks.model.warm_engines import WarmEngines
from tasks.plans.plan import no_worker_message, open_plans, plan_state
from tasks.results.overview import list_runs, list_unrepaired_runs
from tasks.results.runs import read_spec, short_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from uuid import UUID

    from prefect import State
    from prefect.client.schemas.objects import FlowRun
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text
    from sqlalchemy import Engine, Row

    from infra.embedded import ServiceStatus
    from infra.settings import Settings
    from tasks.plans.plan import Plan, PlanState
    from tasks.results.overview import RunStatus

_EVERY_S = 2.0
_RUNS = _SESSIONS = 10
_RECENT = timedelta(days=7)


@example("reelabel status --watch")
def status(
    *, watch: Annotated[bool, typer.Option("--watch", help="Refresh every two seconds until Ctrl-C.")] = False
) -> None:
    """Show services, recent runs, failures and how to fix them."""
    settings = load_settings()
    if not watch:
        OUT.print(_overview(settings), crop=False)  # a command is complete however narrow the terminal is
        return
    with Live(console=OUT, auto_refresh=False) if OUT.is_terminal else nullcontext() as live:
        while True:
            if live:
                live.update(_overview(settings), refresh=True)
            else:  # if nothing can be overwritten, pages follow each other
                OUT.print(_overview(settings), crop=False)
            time.sleep(_EVERY_S)


def _overview(settings: Settings) -> Group:
    found = with_running_services(settings)
    runs: list[RenderableType] = []
    schedules: list[RenderableType] = []
    unrepaired: list[RunStatus] | None = None
    names: Mapping[UUID, str] = {}
    commands: Mapping[UUID, str] = {}
    if not found.database.is_set:
        runs.append(cell("No runs are shown, because Postgres is stopped."))
    else:
        with _errors_shown(runs), connected(found.database, Role.READER) as engine:
            check_schema(engine)
            unrepaired = list_unrepaired_runs(engine, within=_RECENT)
            names = short_ids(engine, [run.run_id for run in unrepaired])
            runs += _runs_and_plans(engine, is_remote=found.run.executor == "remote")
    if found.prefect.api_url is None:
        schedules.append(cell("No schedules are shown, because Prefect is stopped."))
    else:
        with _errors_shown(schedules), prefect_ready(found, patient=False):
            from prefect.client.orchestration import get_client  # noqa: PLC0415 - see prefect_ready

            from flows.cli.status import prefect  # noqa: PLC0415

            with get_client(sync_client=True) as client:
                schedules += map(_line, prefect.schedule_lines(client))
                commands = prefect.repair_commands(client, unrepaired or ())
                schedules.append(_queue(prefect.waiting_runs(client)))
                if workers := prefect.running_workers(client):
                    schedules.append(_workers(workers))
    attention = () if unrepaired is None else _attention(unrepaired, names, commands)
    about = _line(f"Logs: {settings.home / 'logs'}"), _line(f"Model: {_model(settings)}")
    return Group(*_services(settings), *about, *attention, *schedules, *runs)


def _model(settings: Settings) -> str:
    model = settings.model
    name = model.name or ("none is named" if model.backend == "vllm" else f"the one that {model.backend} serves")
    warm = WarmEngines.of(settings.home).show()
    loaded = (f"; {each['model']} stays loaded for {each['until'] - time.time():.0f} s more" for each in warm)
    return "".join([name, *loaded])


@contextmanager
def _errors_shown(parts: list[RenderableType]) -> Iterator[None]:
    try:
        yield
    except ReelabelError as error:
        parts.append(cell(on_one_line(error.message)))


def _line(text: str) -> Text:
    """Return one unwrapped line, so that commands and addresses can be copied."""
    line = cell(text)
    line.no_wrap, line.overflow = True, "ignore"
    return line


def _attention(
    unrepaired: Sequence[RunStatus], names: Mapping[UUID, str], commands: Mapping[UUID, str]
) -> Iterator[RenderableType]:
    """List each run that failed or was lost, its message, and the command that repairs it."""
    if not unrepaired:
        yield cell("No failed or lost runs in the last 7 days.")
        return
    yield cell("Needs attention:")
    for run in unrepaired:
        about = f"{run.started_at.astimezone():%Y-%m-%d %H:%M} {run.kind} {run.dataset} ({names[run.run_id]})"
        yield cell(f"  {about} {run.state}: {on_one_line(run.message or '')}")
        yield _line(f"    {commands.get(run.run_id) or _repair(run)}")


def _repair(run: RunStatus) -> str:
    """Return the command that resumes a run whose options only Prefect knows."""
    if run.kind != "classify":
        return f"Run {command(run.kind)} again with the same options, which are in Prefect."
    return command("classify", run.manifest_uri, dataset=run.dataset, keep_going=bool(run.rejected))


def _services(settings: Settings) -> Iterator[RenderableType]:
    embedded = missing_services(settings, frozenset(ServiceName))
    services = service_status(settings.home)

    def state(service: ServiceStatus) -> str:
        idle = "stopped" if service.name in embedded else "your own"
        return f"running ({service.pid})" if service.is_running else idle

    rows = ((service.name.value, state(service), service.address) for service in services)
    yield make_table(("service", "state", "address"), rows, plain=True)
    if any(service.name in embedded and not service.is_running for service in services):
        yield _line(f"To start stopped services: {command('up')}")


def _runs_and_plans(engine: Engine, *, is_remote: bool) -> Iterator[RenderableType]:
    runs = list_runs(engine, limit=_RUNS)
    plans = [(plan, plan_state(engine, plan.plan_id)) for plan in open_plans(engine)]
    if runs:
        yield _runs(runs, short_ids(engine, [run.run_id for run in runs]))
    if plans:
        yield _plans(plans)
    for plan, state in plans if is_remote else ():
        yield from map(_line, _missing_workers(engine, plan, state))
    if sessions := list_unended(engine, within=_RECENT, limit=_SESSIONS):
        yield from _sessions(sessions)


def _sessions(sessions: Sequence[Row[Any]]) -> Iterator[RenderableType]:
    """Show live sessions, and the commands that show what was saved of lost ones."""
    rows = (
        (
            str(each.session_id)[:8],
            each.host,
            "lost" if each.is_lost else "open",
            each.frames,
            each.queries,
            _duration(each.age_s),
            f"{_duration(each.seen_s)} ago",
        )
        for each in sessions
    )
    columns = ("live session", "host", "state", "frames", "queries", "age", "heartbeat")
    yield make_table(columns, rows, plain=True, unbroken={*columns} - {"host"})
    if lost := [str(each.session_id)[:8] for each in sessions if each.is_lost]:
        yield cell("Lost with their server: every answer has its row; frames of the last seconds are missing.")
        yield from (_line(f"  {command('report', session=each)}") for each in lost)


def _workers(runs: Sequence[FlowRun]) -> Table:
    now = datetime.now(UTC)
    rows = ((run.name, _duration((now - run.start_time).total_seconds())) for run in runs if run.start_time)
    return make_table(("worker", "since"), rows, plain=True, unbroken=("since",))


def _missing_workers(engine: Engine, plan: Plan, state: PlanState) -> Iterator[str]:
    with suppress(ConfigurationError):  # no worker of this version can read its spec, which its run reports
        needed = read_spec(engine, plan.spec_id).model
        # A folder of weights is identified only by its name, which is not a path.
        model = None if needed.fingerprint or needed.served_at else needed.name
        for stage in state.idle_stages:
            yield f"Plan {str(plan.plan_id)[:8]}: {no_worker_message(stage, model=model)}."


def _runs(runs: Sequence[RunStatus], names: Mapping[UUID, str]) -> Table:
    rows = (
        (
            names[run.run_id],
            f"{run.kind} {run.dataset} by {run.model}",
            run.state,
            f"{run.ended:,} of {run.jobs:,}",
            run.failed,
            f"{run.shards_done:,} of {run.shards_total:,}",
            f"{run.jobs_per_s:,.1f}",
            _duration(run.elapsed_s),
            "" if run.remaining_s is None else _duration(run.remaining_s),
        )
        for run in runs
    )
    columns = ("run", "dataset", "state", "jobs", "failed", "shards", "per s", "elapsed", "left")
    return make_table(columns, rows, plain=True, unbroken={*columns} - {"dataset"})


def _plans(plans: Sequence[tuple[Plan, PlanState]]) -> Table:
    rows = (
        (
            str(plan.plan_id)[:8],
            plan.dataset,
            state.planned,
            state.extracted,
            state.done,
            state.failed,
            f"{state.extracting:,} extract, {state.inferring:,} infer",
            state.status,
        )
        for plan, state in plans
    )
    columns = ("plan", "dataset", "planned", "extracted", "done", "failed", "leased", "status")
    return make_table(columns, rows, plain=True, unbroken={*columns} - {"dataset", "leased", "status"})


def _queue(waiting: Sequence[FlowRun]) -> RenderableType:
    if not waiting:
        return cell("No flow runs are waiting.")
    now = datetime.now(UTC)
    rows = (
        (run.name, run.state.name, _duration((now - run.expected_start_time).total_seconds()), _reason(run, run.state))
        for run in waiting
        if run.state is not None and run.expected_start_time is not None
    )
    return make_table(("flow run", "state", "since", "waits for"), rows, plain=True, unbroken=("since",))


def _reason(run: FlowRun, state: State) -> str:
    return {
        "AwaitingConcurrencySlot": "an earlier run of the same deployment",
        "AwaitingRetry": f"its retry: {state.message}",
        "Pending": "its process to start",
    }.get(state.name or "", f"a worker of work pool {run.work_pool_name}")


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
