"""`reelabel status`."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.live import Live
from rich.table import Table

from flows.cli.console import OUT, cell
from flows.cli.context import connected, prefect_ready
from flows.run.names import TAG
from infra.embedded import status, with_running_services
from reelabel.errors import ReelabelError
from tasks.database.schema import check_schema
from tasks.results.overview import list_plans, list_runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType
    from sqlalchemy import Engine

    from infra.settings import Settings
    from tasks.results.overview import PlanStatus, RunStatus

_EVERY_S = 2.0
_RUNS = 10
_WRAPPED = {"dataset", "flow run", "status", "waits for"}
_WAITING = ("SCHEDULED", "PENDING", "PAUSED")


def show_status(settings: Settings, *, watch: bool) -> None:
    """Print the state of services and runs; with `watch`, refresh until Ctrl-C. Start no service."""
    if not watch:
        OUT.print(_overview(settings))
        return
    with Live(_overview(settings), console=OUT, auto_refresh=False) as live:
        while True:
            time.sleep(_EVERY_S)
            live.update(_overview(settings), refresh=True)


def _overview(settings: Settings) -> Group:
    parts: list[RenderableType] = [_services(settings)]
    found = with_running_services(settings)
    if found.database.url is not None:
        try:
            with connected(found) as engine:
                check_schema(engine)
                parts += _runs_and_plans(engine)
        except ReelabelError as error:
            parts.append(cell(error.message))
    if found.prefect.api_url is not None:
        try:
            parts.append(_queue(found))
        except ReelabelError as error:
            parts.append(cell(error.message))
    return Group(*parts)


def _table(*names: str) -> Table:
    """Return a table that fits into 80 columns by wrapping the columns of free text."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in names:
        is_wrapped = name in _WRAPPED
        table.add_column(name, no_wrap=not is_wrapped, overflow="fold" if is_wrapped else "ellipsis")
    return table


def _services(settings: Settings) -> Table:
    table = _table("service", "state", "address")
    table.caption, table.caption_justify = f"Logs: {settings.home / 'logs'}", "left"
    for service in status(settings.home):
        state = f"running ({service.pid})" if service.is_running else "stopped"
        table.add_row(service.name.value, state, service.address or "")
    return table


def _runs_and_plans(engine: Engine) -> Iterator[RenderableType]:
    runs, plans = list_runs(engine, limit=_RUNS), list_plans(engine)
    if runs:
        yield _runs(runs)
    if plans:
        yield _plans(plans)


def _runs(runs: Sequence[RunStatus]) -> Table:
    table = _table("run", "dataset", "state", "jobs", "failed", "shards", "per s, so far", "elapsed", "left")
    for run in runs:
        table.add_row(
            str(run.run_id)[:8],
            cell(f"{run.kind} {run.dataset}"),
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
    table = _table("plan", "dataset", "planned", "extracted", "done", "failed", "extracting", "inferring", "status")
    for plan in plans:
        counts = (plan.planned, plan.extracted, plan.done, plan.failed, plan.extracting, plan.inferring)
        table.add_row(str(plan.plan_id)[:8], cell(plan.dataset), *(f"{count:,}" for count in counts), plan.status)
    return table


def _queue(settings: Settings) -> RenderableType:
    """Show flow runs that are waiting, and for what."""
    with ExitStack() as stack:
        stack.enter_context(prefect_ready(settings, patient=False))
        from prefect.client.orchestration import get_client  # noqa: PLC0415 - see prefect_ready

        client = stack.enter_context(get_client(sync_client=True))
        waiting = [run for run in _flow_runs(client) if run.expected_start_time <= datetime.now(UTC)]
    if not waiting:
        return cell("No flow runs are waiting.")
    table = _table("flow run", "state", "since", "waits for")
    for run in waiting:
        since_s = (datetime.now(UTC) - run.expected_start_time).total_seconds()
        table.add_row(cell(run.name), cell(run.state.name), _duration(since_s), cell(_reason(run)))
    return table


def _flow_runs(client: Any) -> list[Any]:  # noqa: ANN401 - Prefect's, imported late
    from prefect.client.schemas.filters import (  # noqa: PLC0415
        FlowRunFilter,
        FlowRunFilterState,
        FlowRunFilterStateType,
        FlowRunFilterTags,
    )
    from prefect.client.schemas.objects import StateType  # noqa: PLC0415
    from prefect.client.schemas.sorting import FlowRunSort  # noqa: PLC0415

    types = [StateType(name) for name in _WAITING]
    found: list[Any] = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(
            tags=FlowRunFilterTags(all_=[TAG]), state=FlowRunFilterState(type=FlowRunFilterStateType(any_=types))
        ),
        sort=FlowRunSort.EXPECTED_START_TIME_ASC,
    )
    return found


def _reason(run: Any) -> str:  # noqa: ANN401
    """Name what a flow run is waiting for, by its state."""
    return {
        "AwaitingConcurrencySlot": "an earlier run of the same deployment",
        "AwaitingRetry": f"its retry: {run.state.message}",
        "Pending": "its process to start",
    }.get(run.state.name, f"a worker of work pool {run.work_pool_name}")


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
