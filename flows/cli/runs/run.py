"""Starts runs, in this process or through a deployment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.console import print_line, require_parent_folder
from flows.cli.context import ready_to_run
from flows.cli.runs.follow import show_progress
from flows.cli.runs.summary import print_summary
from flows.run.names import TAG
from flows.run.result import NOTHING_TO_DO
from flows.run.spec import require_model
from infra.database.connect import connected
from infra.errors import RunFailedError
from infra.settings import load_settings
from reelabel.errors import ConfigurationError, ReelabelError
from reelabel.text import on_one_line
from tasks.results.runs import cancel_run, read_run

if TYPE_CHECKING:
    from uuid import UUID

    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun
    from sqlalchemy import Engine

    from flows.run.request import RunRequest
    from infra.settings import Settings

_STOPPED = "Stopped by the user."
_CANCEL_TIMEOUT_S = 4  # a command ends within ten seconds of Ctrl-C
_POLL_S = 0.2


def run_locally(request: RunRequest, id_file: str | None = None) -> int:
    """Run a flow in this process with a progress bar, and print its summary; return the exit code."""
    require_model(request.kind, request.parameters, load_settings())  # which does not need to wait for services
    with ready_to_run() as settings:
        run_id = run_flow_locally(request, settings, id_file=id_file)
        return print_summary(settings, run_id)


def run_flow_locally(
    request: RunRequest, settings: Settings, *, id_file: str | None = None, is_watched: bool = True
) -> UUID:
    """Run `classify`, `describe` or `backfill` in this process; return the run's id, written to `id_file` before."""
    from flows.runs import backfill, classify, describe  # noqa: PLC0415

    if id_file is not None:
        require_parent_folder(id_file)
    flow: Any = {each.name: each for each in (classify, describe, backfill)}[request.kind]
    parameters = request.parameters
    flow_run = create_flow_run(flow, parameters)
    if id_file is not None:
        Path(id_file).write_text(f"{flow_run.id}\n")
    with connected(settings.database) as engine:
        with show_progress(lambda: read_run(engine, flow_run.id)) if is_watched else contextlib.nullcontext():
            message = run_flow_here(flow, flow_run, parameters)
        if is_watched and str(message).startswith(NOTHING_TO_DO):
            print_line(str(message))
    return flow_run.id


def create_flow_run(flow: Any, parameters: dict[str, Any]) -> FlowRun:  # noqa: ANN401 - of any flow
    from prefect.client.orchestration import get_client  # noqa: PLC0415

    with get_client(sync_client=True) as client:
        return client.create_flow_run(flow, parameters=parameters, tags=[TAG])


def run_flow_here(flow: Any, flow_run: FlowRun, parameters: dict[str, Any]) -> Any:  # noqa: ANN401 - of any flow
    """Run a flow in this process as an existing flow run; return its result, and propagate an interrupt."""
    from prefect.exceptions import CancelledRun  # noqa: PLC0415
    from prefect.flow_engine import run_flow  # noqa: PLC0415

    from flows.run.run_flow import TERMINATED  # noqa: PLC0415

    try:
        return run_flow(flow, flow_run=flow_run, parameters=parameters)
    except CancelledRun as ended:  # see `flows.run.run_flow`
        if str(ended) == TERMINATED:
            os.kill(os.getpid(), signal.SIGTERM)
        raise KeyboardInterrupt from None


def submit(deployment: str, parameters: dict[str, Any]) -> UUID:
    from prefect.deployments import run_deployment  # noqa: PLC0415
    from prefect.exceptions import ObjectNotFound  # noqa: PLC0415

    try:
        flow_run: Any = run_deployment(deployment, parameters=parameters, timeout=0)  # a coroutine only in async code
    except ObjectNotFound:
        raise _missing(deployment) from None
    run_id: UUID = flow_run.id
    return run_id


def require_deployment(name: str) -> None:
    from prefect.client.orchestration import get_client  # noqa: PLC0415

    from flows.schedule.lookup import find_deployment  # noqa: PLC0415

    with get_client(sync_client=True) as client:
        if find_deployment(client, name) is None:
            raise _missing(name)


def _missing(deployment: str) -> ConfigurationError:
    return ConfigurationError(f"Deployment {deployment} does not exist; create it with `reelabel deploy`.")


def watch_submitted(run_id: UUID, settings: Settings) -> None:
    """Show the progress of a submitted run until it ends; an interrupt cancels it."""
    from prefect.flow_runs import wait_for_flow_run  # noqa: PLC0415

    with connected(settings.database) as engine:
        try:
            with show_progress(lambda: read_run(engine, run_id)):
                ended: Any = asyncio.run(wait_for_flow_run(run_id, timeout=None))
        except (KeyboardInterrupt, SystemExit):
            _cancel(engine, run_id)
            raise
    if not ended.state.is_completed():
        raise RunFailedError(
            f"The run failed: {on_one_line(ended.state.message)} See the logs of flow run {run_id} in Prefect."
        )


def _cancel(engine: Engine, run_id: UUID) -> None:
    import httpx  # noqa: PLC0415
    from prefect.client.orchestration import get_client  # noqa: PLC0415
    from prefect.exceptions import PrefectException  # noqa: PLC0415
    from prefect.states import Cancelled, Cancelling  # noqa: PLC0415

    with contextlib.suppress(httpx.HTTPError, PrefectException), get_client(sync_client=True) as client:
        client.set_flow_run_state(run_id, Cancelling(message=_STOPPED))
        deadline_s = time.monotonic() + _CANCEL_TIMEOUT_S
        while not _has_ended(client, run_id) and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        if not _has_ended(client, run_id):
            client.set_flow_run_state(run_id, Cancelled(message=_STOPPED), force=True)
    with contextlib.suppress(ReelabelError):
        cancel_run(engine, run_id)


def _has_ended(client: SyncPrefectClient, run_id: UUID) -> bool:
    state = client.read_flow_run(run_id).state
    return state is not None and state.is_final()
