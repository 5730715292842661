"""`reelabel classify`: a run in this process, watched."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from flows.commands.opened import services
from infra.database import connect
from infra.embedded import ServiceName, export
from infra.errors import ConfigurationError, ReelabelError
from tasks.results.audit import audit_jobs
from tasks.results.runs import read_run
from tasks.results.schema import upgrade_schema
from tasks.results.summary import summarize_results

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from sqlalchemy import Engine, RowMapping

    from infra.settings import Settings

_CONSOLE = Console()
_POLL_S = 0.5
_STAGES = ("engine start", "fetch", "decode", "cache write", "cache read", "preprocess", "inference", "database")


def run_classify(manifest: str, **parameters: Any) -> int:  # noqa: ANN401 - the flow's own parameters
    """Answer a manifest in this process and print the summary; gives the exit code."""
    return run_here("classify", {"manifest": manifest, **parameters})


def run_here(kind: str, parameters: dict[str, Any]) -> int:
    """Run a flow in this process, watched, and print its summary; gives the exit code."""
    with services(ServiceName.POSTGRES, ServiceName.S3, ServiceName.PREFECT) as settings:
        os.environ.update(export(settings))
        prepare_database(settings)
        run_id = _run_flow(kind, parameters, settings)
        return print_summary(settings, run_id, manifest=parameters["manifest"])


def prepare_database(settings: Settings) -> None:
    """Bring the database to this version's schema."""
    engine = connect(settings.database)
    try:
        upgrade_schema(engine)
    finally:
        engine.dispose()


def _run_flow(kind: str, parameters: dict[str, Any], settings: Settings) -> UUID:
    # Prefect reads its environment when it is imported.
    from prefect.client.orchestration import get_client  # noqa: PLC0415
    from prefect.flow_engine import run_flow  # noqa: PLC0415

    from flows.backfill import backfill  # noqa: PLC0415
    from flows.classify import classify  # noqa: PLC0415

    logging.getLogger("prefect").setLevel(logging.CRITICAL)
    with get_client(sync_client=True) as client:
        flow: Any = {"classify": classify, "backfill": backfill}[kind]
        flow_run = client.create_flow_run(flow, parameters=parameters)
    engine = connect(settings.database)
    try:
        with watched(engine, flow_run.id):
            run_flow(flow, flow_run=flow_run, parameters=parameters)
    finally:
        engine.dispose()
    return flow_run.id


def submit_and_watch(deployment: str, parameters: dict[str, Any], settings: Settings) -> UUID:
    """Run a deployment by the worker, and show its progress.

    Raises:
        ConfigurationError: The run did not complete; its last state says why.
    """
    from prefect.deployments import run_deployment  # noqa: PLC0415
    from prefect.flow_runs import wait_for_flow_run  # noqa: PLC0415

    logging.getLogger("prefect").setLevel(logging.CRITICAL)
    flow_run: Any = run_deployment(deployment, parameters=parameters, timeout=0)  # a coroutine only in async code
    engine = connect(settings.database)
    try:
        with watched(engine, flow_run.id):
            ended: Any = asyncio.run(wait_for_flow_run(flow_run.id, poll_interval=1, timeout=None))
    finally:
        engine.dispose()
    if not ended.state.is_completed():
        raise ConfigurationError(f"The run failed: {ended.state.message} See {settings.home}/logs/worker.log.")
    run_id: UUID = flow_run.id
    return run_id


@contextmanager
def watched(engine: Engine, run_id: UUID) -> Iterator[None]:
    """Show a run's progress, read from its row, until the work inside is done."""
    ended = threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=_CONSOLE) as progress:
        bar = progress.add_task("starting", total=None)

        def look() -> None:
            while not ended.wait(_POLL_S):
                # Where the database is away for a moment, the run itself will say so.
                with contextlib.suppress(ReelabelError):
                    row = read_run(engine, run_id)
                    if row is not None:
                        _move(progress, bar, row)

        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
            row = read_run(engine, run_id)
            if row is not None:
                _move(progress, bar, row)


def _move(progress: Progress, bar: Any, row: RowMapping) -> None:  # noqa: ANN401 - rich's TaskID
    asked = row["jobs_total"] - row["jobs_skipped"]
    done = row["jobs_labelled"] + row["jobs_failed"]
    shards = f"shard {row['shards_done']} of {row['shards_total']}"
    progress.update(bar, description=shards, total=max(asked, 1), completed=done if asked else 1)


def print_summary(settings: Settings, run_id: UUID, *, manifest: str) -> int:
    """Print what a run did, how long it took and where its results are; gives the exit code."""
    from infra.objects import ObjectStore  # noqa: PLC0415
    from tasks.manifest.read import read_jobs  # noqa: PLC0415

    engine = connect(settings.database)
    try:
        row = read_run(engine, run_id)
        assert row is not None
        jobs = read_jobs(manifest, ObjectStore(settings.store, settings.web))
        report = audit_jobs(engine, dataset=row["dataset"], spec_id=row["spec_id"], jobs=jobs)
        summary = summarize_results(engine, dataset=row["dataset"], spec_id=row["spec_id"], jobs=jobs)
    finally:
        engine.dispose()
    seconds = (row["ended_at"] - row["started_at"]).total_seconds()
    asked = row["jobs_labelled"] + row["jobs_failed"]
    table = Table(title=f"{row['kind']} of {row['dataset']}", show_header=False)
    reason = "ended before" if row["kind"] == "classify" else "not chosen, or ended before"
    skipped = f" ({row['jobs_skipped']:,} {reason})" if row["jobs_skipped"] else ""
    table.add_row("jobs", f"{row['jobs_total']:,}{skipped}")
    table.add_row("asked in this run", f"{asked:,} ({row['jobs_labelled']:,} labels, {row['jobs_failed']:,} failures)")
    table.add_row("videos", f"{row['videos_extracted']:,} extracted, {row['videos_cached']:,} from the cache")
    for score in summary.tasks:
        if score.accuracy is not None:
            right = f"{score.accuracy:.3f} ({score.correct:,} of {score.known:,})"
            table.add_row(f"accuracy: {score.task or 'all'}", right)
    for stage in _STAGES:
        table.add_row(f"seconds: {stage}", f"{row['stage_ms'].get(stage, 0.0) / 1e3:.2f}")
    table.add_row("seconds in all", f"{seconds:.1f}")
    if asked:
        table.add_row("jobs per second", f"{asked / seconds:.1f}")
    for group in summary.failures:
        table.add_row(f"failed: {group.code}", f"{group.count:,}, such as {group.job_id}: {group.message}")
    table.add_row("audit", str(report))
    _CONSOLE.print(table)
    _CONSOLE.print(f"Results: reelabel results {str(run_id)[:8]}", highlight=False)
    if settings.prefect.api_url:
        url = settings.prefect.api_url.removesuffix("/api") + f"/runs/flow-run/{run_id}"
        _CONSOLE.print(f"Prefect: {url}", soft_wrap=True, highlight=False)
    return 0 if report.is_reconciled and not report.failures else 1
