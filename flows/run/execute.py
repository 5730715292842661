"""A run from manifest to audit, as shared by `classify`, `describe` and `backfill`."""

from __future__ import annotations

import socket
from contextlib import ExitStack, contextmanager, suppress
from math import inf
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from prefect import get_run_logger
from prefect.runtime import flow_run

from flows.run.artifacts import publish_results
from flows.run.flow_run import render_request, write_error_file
from flows.run.heartbeat import heartbeat
from flows.run.plan import Planner, finish_plan
from flows.run.progress import Progress
from flows.run.request import DescribeRequest, ManifestRequest
from flows.run.result import NOTHING_TO_DO, RunResult, completed_state, cost_lines
from flows.run.run import Run
from flows.run.run_flow import is_stopped_by_user
from flows.shard.retry import retry_outage
from infra.database.connect import connected
from infra.embedded import full_disk_named
from infra.errors import ManifestMissingError, NotReconciledError
from infra.extras import require_lake
from infra.logs import logged
from infra.program import with_program_name
from infra.settings import load_settings
from infra.telemetry import run_traced, start_telemetry
from infra.temporary import remove_stale_folders
from reelabel.cores import usable_cores
from reelabel.errors import ConfigurationError, ReelabelError, TransientError
from reelabel.sources.object_info import redact_uri
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize, quoted
from tasks.database.schema import prepare_database
from tasks.domain import RunPhase, WallClockProfile
from tasks.domain.coverage import DOCS_PAGE, coverage_warnings
from tasks.frame_cache.pool import frame_cache
from tasks.manifest.location import dataset_name, manifest_fingerprint
from tasks.manifest.rejects import rejected_csv
from tasks.manifest.table import open_jobs
from tasks.plans.plan import is_drained
from tasks.report.pages import page_link, page_of_run, page_uri, rejected_uri
from tasks.results.audit import audit_jobs
from tasks.results.evaluation.routing import read_routing
from tasks.results.lake.export import export_ended_runs
from tasks.results.pending import count_reused_ids, refresh_annotations
from tasks.results.read import failures_of_run
from tasks.results.runs import LOST, cancel_run, close_lost_runs, close_run, read_run
from tasks.results.summary import warn_of_labels
from tasks.results.write import RunKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prefect import State
    from sqlalchemy import Engine

    from flows.run.flow_run import Scheduled
    from flows.run.request import RunRequest
    from flows.run.run import Prepare, RequestT
    from flows.run.selection import JobSelector
    from infra.settings import Settings
    from tasks.manifest.table import JobTable
    from tasks.plans.plan import Plan
    from tasks.results.audit import AuditReport


# An artifact is a row of Prefect's database.
_FAILURES_SHOWN = 1000


def execute_scheduled(request: Scheduled, prepare: Prepare[Scheduled]) -> State[str]:
    """Execute a request whose manifest and dataset may hold date placeholders; return the final state of its flow run.

    Without a dataset, it is derived from the manifest.
    """
    settings = load_settings()
    request = render_request(request, flow_run.id)
    try:
        with write_error_file(request.manifest, settings):
            return completed_state(execute_run(request, settings, prepare))
    except ManifestMissingError as error:
        if not request.may_be_empty:
            raise
        return completed_state(f"{NOTHING_TO_DO}: {error.message}")


def execute_run(
    request: RequestT, settings: Settings, prepare: Prepare[RequestT], *, selector: JobSelector | None = None
) -> RunResult:
    """Execute a run inside a Prefect flow; of the jobs that a backfill selects, or of the whole manifest.

    The request is validated before the first row is written; only a failure to load the model is detected later.

    Raises:
        ManifestError: The manifest cannot be used.
        ModelError: The model cannot be used.
        ConfigurationError: A service is unreachable or refuses access.
        NotReconciledError: The run ended, but some jobs have no row.
        TransientError: A service was unavailable for longer than the retries; run again to continue.
    """
    remove_stale_folders()
    progress = Progress(
        processes=settings.extract.processes or usable_cores(),
        prices=settings.cost,
        max_cost=settings.run.max_cost or inf,
    )
    with ExitStack() as stack:
        with progress.profile.doing(RunPhase.SETUP):
            run = stack.enter_context(open_run(request, settings, prepare, progress.profile, selector=selector))
            _log_warnings(list(run.prepared.warnings))
            refresh_annotations(run.database, run.key, jobs=run.jobs)
            close_lost_runs(run.database)
        start_telemetry(settings.metrics)
        stack.enter_context(logged(run=run.key.run_id))
        stack.enter_context(run_traced(run.key.run_id, request.kind))
        with _interruption_recorded(run), full_disk_named(settings.home):
            planner = Planner(run)
            report = _answer_jobs(planner, progress)
            columns = _record(run, progress, report)
        _export(run)
        _publish(run, report, columns)
        return RunResult(answered=progress.jobs_ended, report=report, chosen=planner.chosen, notes=planner.notes)


@contextmanager
def open_run(
    request: RequestT,
    settings: Settings,
    prepare: Prepare[RequestT],
    profile: WallClockProfile | None = None,
    *,
    selector: JobSelector | None = None,
) -> Iterator[Run]:
    """Check everything that a run needs, except that the model loads; no row is written.

    Raises:
        ManifestError: The manifest cannot be used.
        ModelError: The model cannot be used.
        ConfigurationError: A service is unreachable or refuses access, or the dataset belongs to another manifest.
    """
    if settings.run.max_cost and not settings.cost.is_set:
        raise ConfigurationError("run.max_cost needs a price: set cost.per_gpu_hour, cost.per_cpu_hour or both.")
    if settings.results.lake:
        require_lake(settings.results.lake)
    profile = profile or WallClockProfile()
    objects = ObjectStore(settings.store, settings.web)
    next(objects.list(_required_store(settings)), None)  # raises if the bucket is missing or refuses access
    # Read first: if the manifest is replaced meanwhile, its jobs must not be recorded under the new version.
    fingerprint = manifest_fingerprint(request.manifest, objects)
    with ExitStack() as stack:
        earlier = selector.earlier if selector else None
        describes = earlier.describes if earlier else isinstance(request, DescribeRequest)
        opened = open_jobs(
            request.manifest,
            objects,
            only=selector.only if selector else None,
            keep_going=earlier.keep_going if earlier else isinstance(request, ManifestRequest) and request.keep_going,
            questions=not describes,
        )
        jobs = stack.enter_context(opened)
        prepare_database(settings.database)
        database = stack.enter_context(connected(settings.database))
        _reject_reused_ids(database, request, jobs, describes=describes)
        prepared = stack.enter_context(prepare(request, settings, jobs, database, profile))
        key = RunKey(
            run_id=UUID(flow_run.id) if flow_run.id else uuid4(),
            dataset=request.dataset or dataset_name(request.manifest),
            spec_id=prepared.spec.spec_id,
            host=socket.gethostname(),
        )
        yield Run(
            request=request,
            selector=selector,
            key=key,
            prepared=prepared,
            jobs=jobs,
            manifest_fingerprint=fingerprint,
            settings=settings,
            objects=objects,
            database=database,
            profile=profile,
        )


def _required_store(settings: Settings) -> str:
    if settings.database.url is None or settings.store.uri is None:
        raise ConfigurationError(
            "No database or store is configured; set REELABEL_DATABASE_URL and REELABEL_STORE_URI, "
            "or start the run with `reelabel classify` or `reelabel describe`, which start embedded ones.",
        )
    return settings.store.uri


def _reject_reused_ids(database: Engine, request: RunRequest, jobs: JobTable, *, describes: bool) -> None:
    """Reject a manifest whose default dataset holds the rows of another one with the same file name."""
    if request.dataset is not None:
        return
    dataset = dataset_name(request.manifest)
    count = count_reused_ids(database, dataset=dataset, manifest_uri=request.manifest, jobs=jobs, describes=describes)
    if count:
        raise ConfigurationError(
            f"Dataset {dataset} holds {'descriptions' if describes else 'labels'} of another manifest for "
            f"{count:,} of these job ids; name another dataset, or name {dataset} to replace them.",
        )


def _answer_jobs(planner: Planner, progress: Progress) -> AuditReport:
    run = planner.run
    with heartbeat(run.database, run.key.run_id, progress):
        with progress.profile.doing(RunPhase.SETUP):
            plan = planner.plan()
        while plan:
            _execute_plan(plan, progress, run, done_before=planner.done_before)
            # Jobs may have changed since a joined plan was made.
            plan = retry_outage(planner.plan) if plan.run_id != run.key.run_id else None
    with progress.profile.doing(RunPhase.AUDIT):
        return retry_outage(lambda: audit_jobs(run.database, run.key, jobs=planner.audited_jobs.parts()))


def _execute_plan(plan: Plan, progress: Progress, run: Run, *, done_before: Sequence[int]) -> None:
    """Execute a plan until it is drained; a shared plan of a run that fails is kept for the next run."""
    try:
        progress.require_budget()  # before a further plan
        run.prepared.execute(run, plan, progress, done_before)
        if not retry_outage(is_drained, run.database, plan.plan_id):
            progress.require_budget()
    except BaseException:
        if not plan.shared:
            with suppress(TransientError):
                finish_plan(run.database, run.objects, plan, state="dropped")
        raise
    retry_outage(finish_plan, run.database, run.objects, plan, state="done")


def _record(run: Run, progress: Progress, report: AuditReport) -> dict[str, Any]:
    # Jobs answered by other runs meanwhile count as skipped; a few may have been answered twice.
    columns = progress.columns() | {"jobs_skipped": max(0, run.jobs.jobs_in_manifest - progress.jobs_ended)}
    state = "done" if report.is_reconciled else "failed"
    retry_outage(close_run, run.database, run.key.run_id, state=state, message=str(report), **columns)
    return columns


def _export(run: Run) -> None:
    """Export the rows of this run, and of earlier runs that were not exported.

    Errors are logged, since an export must not fail its run.
    """
    settings = run.settings
    if (target := settings.results.export_uri) is None:
        return
    try:
        rows = export_ended_runs(run.database, settings.store, settings.results, dataset=run.key.dataset)
    except Exception as error:  # noqa: BLE001 - the run itself has succeeded
        get_run_logger().warning(
            "Rows not exported to %s: %s The next run of %s exports them, too.",
            redact_uri(target),
            _sentence(error),
            run.key.dataset,
        )
    else:
        get_run_logger().info("Exported %s to %s", pluralize(rows, "row"), redact_uri(target))


def _sentence(error: Exception) -> str:
    return error.message if isinstance(error, ReelabelError) else f"{type(error).__name__}: {error}."


def _publish(run: Run, report: AuditReport, columns: dict[str, Any]) -> None:
    asks, database, run_id = run.has_questions, run.database, run.key.run_id
    get_run_logger().info("%s", " ".join(filter(None, (str(report), columns["bottleneck"]))))
    routing = retry_outage(read_routing, database, run.key, run_id=run_id) if asks else None
    publish_results(
        run_id,
        dataset=run.key.dataset,
        report=report,
        cost=[*(routing.lines() if routing else ()), *cost_lines(columns)],
        warnings=[
            *run.prepared.warnings,
            *_report_rejects(run),
            *_log_warnings(retry_outage(warn_of_labels, database, run_id=run_id) if asks else []),
            *_log_warnings([f"{warning}; see {DOCS_PAGE}" for warning in coverage_warnings(columns["coverage"])]),
        ],
        page=write_report_page(database, run_id, run.settings),
        failures=retry_outage(failures_of_run, database, run_id, limit=_FAILURES_SHOWN),
    )
    if not report.is_reconciled:
        raise NotReconciledError(str(report))


def write_report_page(database: Engine, run_id: UUID, settings: Settings) -> str | None:
    """Write the report page of a run that has ended, unless `report.at_end` is off.

    Errors are logged, since a report must not fail its run.

    Returns:
        URL of the page; None if it was not written, or `report.base_url` is not set.
    """
    store_uri = settings.store.uri
    if not settings.report.at_end or store_uri is None:
        return None
    objects, uri = ObjectStore(settings.store, settings.web), page_uri(store_uri, run_id)
    try:
        row = read_run(database, run_id)
        if row is None:
            return None
        objects.replace(uri, page_of_run(database, objects, row, cache=frame_cache(settings)).encode())
    except Exception as error:  # noqa: BLE001 - the run itself has succeeded
        get_run_logger().warning(
            "Report not written: %s %s",
            _sentence(error),
            with_program_name(f"To try again: `reelabel report {run_id}`."),
        )
        return None
    get_run_logger().info("Report written to %s", uri)
    return page_link(settings.report.base_url, run_id) if settings.report.base_url else None


def _log_warnings(warnings: list[str]) -> list[str]:
    for warning in warnings:
        get_run_logger().warning("%s.", warning)
    return warnings


def _report_rejects(run: Run) -> list[str]:
    rejects, store_uri = run.jobs.rejects, run.settings.store.uri
    if rejects.is_empty() or store_uri is None:
        return []
    uri = rejected_uri(store_uri, run.key.run_id)
    retry_outage(lambda: run.objects.replace(uri, rejected_csv(rejects)))
    rows = pluralize(len(rejects), "row")
    first = f"row {rejects['row'][0]} ({quoted(rejects['job_id'][0])}): {rejects['reason'][0]}"
    warning = f"{rows} of the manifest rejected, such as {first} All are listed in {uri}"
    get_run_logger().warning("%s", warning)
    return [warning]


@contextmanager
def _interruption_recorded(run: Run) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        with suppress(TransientError):
            if isinstance(error, Exception):
                close_run(run.database, run.key.run_id, state="failed", message=_sentence(error))
            elif is_stopped_by_user(error):
                cancel_run(run.database, run.key.run_id)
            else:
                close_run(run.database, run.key.run_id, state="lost", message=LOST)
        raise
