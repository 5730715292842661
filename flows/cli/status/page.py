"""The page of `reelabel status`."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from flows.cli.console import OUT, cell
from flows.cli.context import prefect_ready
from infra.database.connect import Login, connected
from infra.embedded import ServiceName, missing_services, status, with_running_services
from infra.program import command
from reelabel.errors import ConfigurationError, ReelabelError
from reelabel.sources.object_store import ObjectStore
from reelabel.text import on_one_line
from tasks.database.schema import check_schema
from tasks.live.record.stored import list_unended
from tasks.model.engine.keeper import WarmEngines
from tasks.plans.plan import idle_stages, no_worker_message
from tasks.results.overview import list_plans, list_runs, list_unrepaired_runs
from tasks.results.repairs import Repairs, Work
from tasks.results.runs import cancelled_runs, read_spec, short_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from uuid import UUID

    from prefect import State
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Column
    from sqlalchemy import Engine

    from flows.cli.status.prefect import Trouble
    from infra.settings import Settings
    from tasks.live.record.stored import UnendedSession
    from tasks.results.overview import PlanStatus, RunStatus

_EVERY_S = 2.0
_RUNS = _SESSIONS = 10
# Columns that are wrapped where the table is too wide, and their least widths: those of their longest usual words.
_WRAPPED = {
    "dataset": 8,
    "flow run": 8,
    "jobs": 7,
    "leased": 10,
    "per s, so far": 6,
    "shards": 6,
    "status": 8,
    "waits for": 8,
    "worker": 8,
}
_OF_LATE = timedelta(days=7)


def show_status(settings: Settings, *, watch: bool) -> None:
    """Print the state of services and runs; with `watch`, refresh until Ctrl-C. Start no service."""
    repairs = Repairs()
    if not watch:
        OUT.print(_overview(settings, repairs), crop=False)  # a command is complete however narrow the terminal is
        return
    if not OUT.is_terminal:  # where nothing can be written over, one page follows the other
        while True:
            OUT.print(_overview(settings, repairs), crop=False)
            time.sleep(_EVERY_S)
    with Live(_overview(settings, repairs), console=OUT, auto_refresh=False) as live:
        while True:
            time.sleep(_EVERY_S)
            live.update(_overview(settings, repairs), refresh=True)


def _overview(settings: Settings, repairs: Repairs) -> Group:
    found = with_running_services(settings)
    bad: list[RunStatus] = []
    runs: list[RenderableType] = []
    troubles: Mapping[UUID, Trouble | None] = {}
    have_done: Callable[[Work], bool] | None = None
    plans: list[RenderableType] = []
    names: dict[UUID, str] = {}
    with ExitStack() as stack:
        if not found.database.is_set:
            runs.append(cell("No runs are shown, since Postgres is stopped."))
        else:
            with _errors_shown(runs):
                engine = stack.enter_context(connected(found.database, Login.READER))
                check_schema(engine)
                objects = ObjectStore(found.store, found.web)
                have_done = partial(repairs.have_done, engine=engine, objects=objects)
                bad = list_unrepaired_runs(engine, within=_OF_LATE)
                runs += _runs_and_plans(engine, is_remote=found.run.executor == "remote")
        if found.prefect.api_url is None:
            plans.append(cell("No schedules are shown, since Prefect is stopped."))
        else:
            with _errors_shown(plans):
                client = stack.enter_context(_prefect_client(found))
                from flows.cli.status import prefect  # noqa: PLC0415 - see prefect_ready

                plans += [_line(line) for line in prefect.schedule_lines(client)]
                troubles = prefect.find_troubles(client, within=_OF_LATE, lost=[run.run_id for run in bad])
                plans.append(_queue(prefect.waiting_runs(client)))
                if workers := prefect.running_workers(client):
                    plans.append(_workers(workers))
        if have_done:
            with _errors_shown(runs):
                troubles = _without_repaired(bad, troubles, have_done) | dict.fromkeys(cancelled_runs(engine, troubles))
                names = short_ids(engine, [*troubles, *(run.run_id for run in bad)])
    attention = _troubles(bad, troubles, names, is_known=have_done is not None)
    logs = _line(f"Logs: {settings.home / 'logs'}")
    return Group(*_services(settings), logs, _line(f"Model: {_model(settings)}"), *attention, *plans, *runs)


def _model(settings: Settings) -> str:
    """Say which model new runs ask, and which one is loaded."""
    model = settings.model
    name = model.name or ("none is named" if model.backend == "vllm" else f"the one that {model.backend} serves")
    kept = WarmEngines.of(settings.home).show()
    loaded = (f"; {each['model']} stays loaded for {each['until'] - time.time():.0f} s more" for each in kept)
    return "".join([name, *loaded])


@contextmanager
def _errors_shown(parts: list[RenderableType]) -> Iterator[None]:
    """Show an error of one service among the parts of the page, instead of raising it."""
    try:
        yield
    except ReelabelError as error:
        parts.append(cell(on_one_line(error.message)))


@contextmanager
def _prefect_client(settings: Settings) -> Iterator[SyncPrefectClient]:
    with prefect_ready(settings, patient=False):
        from prefect.client.orchestration import get_client  # noqa: PLC0415 - see prefect_ready

        with get_client(sync_client=True) as client:
            yield client


def _line(text: str) -> Text:
    """Return one line, which is not wrapped: commands and addresses are copied."""
    line = cell(text)
    line.no_wrap, line.overflow = True, "ignore"
    return line


def _without_repaired(
    bad: Sequence[RunStatus], known: Mapping[UUID, Trouble | None], have_done: Callable[[Work], bool]
) -> dict[UUID, Trouble | None]:
    """Return what is known of runs, with None also for those whose work was done by hand."""
    works = {run_id: each.work for run_id, each in known.items() if each is not None} | {
        run.run_id: Work(manifest_uri=run.manifest_uri, dataset=run.dataset, since=run.started_at, spec_id=run.spec_id)
        for run in bad
        if run.kind == "classify"
    }
    return {**known, **{run_id: None for run_id, work in works.items() if work is not None and have_done(work)}}


def _troubles(
    bad: Sequence[RunStatus],
    known: Mapping[UUID, Trouble | None],
    names: Mapping[UUID, str],
    *,
    is_known: bool,
) -> Iterator[RenderableType]:
    """List each run that failed, crashed or was lost, its sentence, and the command that repairs it.

    That there is none is said only if the database has been read (`is_known`).
    """
    rows = {run.run_id: run for run in bad if known.get(run.run_id, run) is not None}
    entries = [
        (run.started_at, f"{run.kind} {run.dataset}", run.state, run_id, run.message, _repair(run, known.get(run_id)))
        for run_id, run in rows.items()
    ]
    entries += [
        (each.at, each.what, each.state, run_id, each.message, each.repair)
        for run_id, each in known.items()
        if each is not None and run_id not in rows
    ]
    if not entries:
        if is_known:
            yield cell("No run of the last 7 days is left failed, crashed or lost.")
        return
    yield cell("Needs attention:")
    for at, what, state, run_id, message, repair in sorted(entries, key=lambda entry: entry[0], reverse=True):
        name, why = names.get(run_id, run_id), on_one_line(message or "")
        yield cell(f"  {at.astimezone():%Y-%m-%d %H:%M} {what} ({name}) {state}: {why}")
        if repair:
            yield _line(f"    {repair}")


def _repair(run: RunStatus, known: Trouble | None) -> str | None:
    """Return the command that continues a run; without Prefect, the options of most are unknown."""
    if known is not None:
        return known.repair
    if run.kind != "classify":
        return f"Start {command(run.kind)} again with the options that it had, which only Prefect knows."
    return command("classify", run.manifest_uri, dataset=run.dataset, keep_going=bool(run.rejected))


class _Fitting(Table):
    """A table that is shown as a list, one line a cell, where the terminal is too narrow for its columns."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the table, or the list."""
        if sum(map(_least_width, self.columns)) <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        for row in zip(*(column.cells for column in self.columns), strict=True):
            yield Text()
            for column, value in zip(self.columns, row, strict=True):
                yield cell(f"{column.header}: {value}")


def _least_width(column: Column) -> int:
    """Return how wide a column must be, with the space after it."""
    return 1 + (column.min_width or max(cell_len(str(each)) for each in (column.header, *column.cells)))


def _table(*names: str) -> Table:
    """Return a table that fits into 80 columns by wrapping the columns of free text."""
    table = _Fitting(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in names:
        least = _WRAPPED.get(name)
        table.add_column(name, no_wrap=not least, overflow="fold" if least else "ellipsis", min_width=least)
    return table


def _services(settings: Settings) -> Iterator[RenderableType]:
    """Show the services, and say how to start those of ours that are stopped."""
    table = _table("service", "state", "address")
    embedded = missing_services(settings, frozenset(ServiceName))
    services = status(settings.home)
    for service in services:
        idle = "stopped" if service.name in embedded else "your own"
        state = f"running ({service.pid})" if service.is_running else idle
        table.add_row(service.name.value, state, service.address or "")
    yield table
    if any(service.name in embedded and not service.is_running for service in services):
        yield _line(f"To start what is stopped: {command('up')}")


def _runs_and_plans(engine: Engine, *, is_remote: bool) -> Iterator[RenderableType]:
    runs, plans = list_runs(engine, limit=_RUNS), list_plans(engine)
    if runs:
        yield _runs(runs, short_ids(engine, [run.run_id for run in runs]))
    if plans:
        yield _plans(plans)
    for plan in plans if is_remote else ():
        yield from map(_line, _absences(engine, plan))
    if sessions := list_unended(engine, within=_OF_LATE, limit=_SESSIONS):
        yield from _sessions(sessions)


def _sessions(sessions: Sequence[UnendedSession]) -> Iterator[RenderableType]:
    """Show live sessions, and say what those have left behind that were lost with their server."""
    table = _table("live session", "host", "state", "frames", "queries", "age", "heartbeat")
    for each in sessions:
        table.add_row(
            str(each.session_id)[:8],
            cell(each.host),
            "lost" if each.is_lost else "open",
            f"{each.frames:,}",
            f"{each.queries:,}",
            _duration(each.age_s),
            f"{_duration(each.seen_s)} ago",
        )
    yield table
    if lost := [str(each.session_id)[:8] for each in sessions if each.is_lost]:
        yield cell(
            "Lost with their server: every answer given has its row, and frames of the last seconds are missing."
        )
        yield from (_line(f"  {command('report', session=each)}") for each in lost)


def _workers(runs: Sequence[FlowRun]) -> Table:
    table = _table("worker", "since")
    for run in runs:
        if run.start_time is not None:
            table.add_row(cell(run.name), _duration((datetime.now(UTC) - run.start_time).total_seconds()))
    return table


def _absences(engine: Engine, plan: PlanStatus) -> Iterator[str]:
    """Say which stages of a plan have no worker, and how to start one."""
    with suppress(ConfigurationError):  # no worker of this version can read its spec, and its run says so
        needed = read_spec(engine, plan.spec_id).model
        # A folder of weights is known by its name alone, which is no path.
        model = None if needed.fingerprint or needed.served_at else needed.name
        for stage in idle_stages(
            planned=plan.planned,
            extracted=plan.extracted,
            done=plan.done,
            extracting=plan.extracting,
            inferring=plan.inferring,
        ):
            yield f"Plan {str(plan.plan_id)[:8]}: {no_worker_message(stage, model=model)}."


def _runs(runs: Sequence[RunStatus], names: Mapping[UUID, str]) -> Table:
    table = _table("run", "dataset", "state", "jobs", "failed", "shards", "per s, so far", "elapsed", "left")
    for run in runs:
        table.add_row(
            names[run.run_id],
            cell(f"{run.kind} {run.dataset} by {run.model}"),
            run.state,
            f"{run.ended:,} of {run.jobs:,}",
            f"{run.failed:,}",
            f"{run.shards_done:,} of {run.shards_total:,}",
            f"{run.jobs_per_s:,.1f}",
            _duration(run.elapsed_s),
            "" if run.remaining_s is None else _duration(run.remaining_s),
        )
    return table


def _plans(plans: Sequence[PlanStatus]) -> Table:
    table = _table("plan", "dataset", "planned", "extracted", "done", "failed", "leased", "status")
    for plan in plans:
        counts = (plan.planned, plan.extracted, plan.done, plan.failed)
        leased = f"{plan.extracting:,} extract, {plan.inferring:,} infer"
        table.add_row(
            str(plan.plan_id)[:8], cell(plan.dataset), *(f"{count:,}" for count in counts), leased, plan.status
        )
    return table


def _queue(waiting: Sequence[FlowRun]) -> RenderableType:
    """Show flow runs that are waiting, and for what."""
    if not waiting:
        return cell("No flow runs are waiting.")
    table = _table("flow run", "state", "since", "waits for")
    for run in waiting:
        if run.state is not None and run.expected_start_time is not None:
            since_s = (datetime.now(UTC) - run.expected_start_time).total_seconds()
            table.add_row(cell(run.name), cell(run.state.name or ""), _duration(since_s), cell(_reason(run, run.state)))
    return table


def _reason(run: FlowRun, state: State) -> str:
    """Name what a flow run is waiting for, by its state."""
    return {
        "AwaitingConcurrencySlot": "an earlier run of the same deployment",
        "AwaitingRetry": f"its retry: {state.message}",
        "Pending": "its process to start",
    }.get(state.name or "", f"a worker of work pool {run.work_pool_name}")


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
