"""A run from manifest to audit, as shared by `classify`, `describe` and `backfill`."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from prefect import get_run_logger
from prefect.runtime import flow_run

from flows.run.arrival import broken_manifest_told
from flows.run.artifacts import publish_results
from flows.run.checks import open_run_context
from flows.run.heartbeat import heartbeat
from flows.run.plan import Planner, finish_plan
from flows.run.progress import Progress
from flows.run.result import RunResult, completed_state, cost_lines
from flows.run.scheduled import empty_night, render_request
from flows.shard.retry import retry_outage
from infra.embedded import full_disk_named
from infra.errors import ManifestMissingError, NotReconciledError
from infra.logs import logged
from infra.program import as_started
from infra.settings import load_settings
from infra.telemetry import start_metrics
from reelabel.cores import usable_cores
from reelabel.coverage import DOCS_PAGE, coverage_warnings
from reelabel.errors import ReelabelError, TransientError
from reelabel.sources.object_store import ObjectStore
from reelabel.temporary import remove_stale_folders
from reelabel.text import pluralize
from tasks.domain import RunPhase
from tasks.frame_cache.pool import frame_cache
from tasks.manifest.rejects import rejected_csv
from tasks.report.pages import page_link, page_of_run, page_uri, rejected_uri
from tasks.results.audit import audit_jobs
from tasks.results.evaluation.routing import read_routing
from tasks.results.read import failures_of_run
from tasks.results.runs import cancel_run, close_run, read_run
from tasks.results.summary import count_low_mass, read_order, warn_of_low_mass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from uuid import UUID

    from prefect import State
    from sqlalchemy import Engine

    from flows.run.context import RunContext
    from flows.run.request import RunRequest
    from infra.settings import Settings
    from tasks.plans.plan import Plan
    from tasks.results.audit import AuditReport


# An artifact is a row of Prefect's database.
_FAILURES_SHOWN = 1000


def warn_of_coverage(coverage: Mapping[str, int]) -> list[str]:
    """Log a warning for each reason; return the warnings."""
    warnings = [f"{warning}; see {DOCS_PAGE}" for warning in coverage_warnings(coverage)]
    for warning in warnings:
        get_run_logger().warning("%s.", warning)
    return warnings


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
        why = error.message if isinstance(error, ReelabelError) else f"{type(error).__name__}: {error}"
        get_run_logger().warning(
            "Report not written: %s %s", why, as_started(f"To try again: `reelabel report {run_id}`.")
        )
        return None
    get_run_logger().info("Report written to %s", uri)
    return page_link(settings.report.base_url, run_id) if settings.report.base_url else None


def execute_scheduled(request: RunRequest, timezone: str, *, may_be_empty: bool) -> State[str]:
    """Execute a request whose manifest and dataset may hold date placeholders; return how its flow run ends.

    Args:
        request: The request; without a dataset, it is derived from the manifest.
        timezone: Time zone of the dates.
        may_be_empty: Complete instead of failing if no manifest is found, but not the third time in a row.
    """
    settings = load_settings()
    request = render_request(request, timezone, flow_run.id)
    try:
        with broken_manifest_told(request.manifest, settings):
            return completed_state(execute_run(request, settings))
    except ManifestMissingError as error:
        if not may_be_empty:
            raise
        return empty_night(error)


def execute_run(request: RunRequest, settings: Settings) -> RunResult:
    """Execute a run inside a Prefect flow.

    The request is validated before the first row is written; only a failure to load the model is detected later.

    Raises:
        ManifestError: The manifest cannot be used.
        ModelError: The model cannot be used.
        ConfigurationError: A service is unreachable or refuses access.
        NotReconciledError: The run ended, but some jobs have no row.
        TransientError: A service was unavailable for longer than the retries; run again to continue.
    """
    remove_stale_folders()
    progress = Progress(processes=settings.extract.processes or usable_cores())
    with ExitStack() as stack:
        with progress.ledger.doing(RunPhase.SETUP):
            context = stack.enter_context(open_run_context(request, settings, progress.ledger))
        run_logged = logged(run=context.run.run_id)
        with run_logged, _interruption_recorded(context), full_disk_named(settings.home):
            planner = Planner.of(context)
            report = _answer_jobs(planner, progress)
            columns = _record(context, progress, report)
        _publish(context, report, columns)
        return RunResult(answered=progress.jobs_ended, report=report, chosen=planner.chosen, notes=planner.notes)


def _answer_jobs(planner: Planner, progress: Progress) -> AuditReport:
    """Plan, execute the plan, and audit the result."""
    context, run = planner.context, planner.context.run
    with heartbeat(context.database, run.run_id, progress, context.settings.notify):
        with progress.ledger.doing(RunPhase.SETUP):
            plan = planner.plan()
        while plan:
            _execute_plan(plan, progress, context, done_before=planner.done_before)
            # Jobs may have changed since a joined plan was made.
            plan = planner.plan() if plan.run_id != run.run_id else None
    with progress.ledger.doing(RunPhase.AUDIT):
        return retry_outage(lambda: audit_jobs(context.database, run, jobs=planner.audited_jobs.parts()))


def _execute_plan(plan: Plan, progress: Progress, context: RunContext, *, done_before: Sequence[int]) -> None:
    """Execute a plan until it is drained."""
    database = context.database
    start_metrics(context.settings.metrics)
    try:
        context.execute(plan, progress, context, done_before=done_before)
    except BaseException as error:
        # A shared plan is kept for the next run, but workers must not continue a run that its user has stopped.
        is_stopped = not context.purpose.is_local(context.settings) and not isinstance(error, Exception)
        if is_stopped or not plan.shared:
            with suppress(TransientError):
                finish_plan(database, context.objects, plan, state="dropped")
        raise
    retry_outage(partial(finish_plan, database, context.objects, plan, state="done"))


def _record(context: RunContext, progress: Progress, report: AuditReport) -> dict[str, Any]:
    """Record the outcome of the run; return the columns of its row."""
    # Jobs answered by other runs meanwhile count as skipped; a few may have been answered twice.
    columns = progress.columns() | {"jobs_skipped": max(0, context.jobs.jobs_in_manifest - progress.jobs_ended)}
    state = "done" if report.is_reconciled else "failed"
    retry_outage(partial(close_run, context.database, context.run.run_id, state=state, message=str(report), **columns))
    return columns


def _publish(context: RunContext, report: AuditReport, columns: dict[str, Any]) -> None:
    """Publish the outcome of the run.

    Raises:
        NotReconciledError: Some jobs have no row.
    """
    asks = context.purpose.has_questions
    get_run_logger().info("%s", " ".join(filter(None, (str(report), columns["bottleneck"]))))
    publish_results(
        context.run.run_id,
        dataset=context.run.dataset,
        report=report,
        cost=[*(_routing_lines(context) if asks else ()), *cost_lines(columns)],
        warnings=[
            *context.warnings,
            *_report_rejects(context),
            *(_warn_of_answers(context) if asks else ()),
            *warn_of_coverage(columns["coverage"]),
        ],
        page=write_report_page(context.database, context.run.run_id, context.settings),
        failures=retry_outage(partial(failures_of_run, context.database, context.run.run_id, limit=_FAILURES_SHOWN)),
    )
    if not report.is_reconciled:
        raise NotReconciledError(str(report))


def _warn_of_answers(context: RunContext) -> list[str]:
    """Log warnings if position decided most answers, or answers mean little; return them."""
    order = retry_outage(partial(read_order, context.database, run_id=context.run.run_id))
    low_mass = retry_outage(partial(count_low_mass, context.database, run_id=context.run.run_id))
    warnings = [each for each in (order.warning if order else "", warn_of_low_mass(low_mass)) if each]
    for each in warnings:
        get_run_logger().warning("%s.", each)
    return warnings


def _routing_lines(context: RunContext) -> list[tuple[str, str]]:
    run = context.run
    routing = retry_outage(partial(read_routing, context.database, run, run_id=run.run_id))
    return routing.lines() if routing else []


def _report_rejects(context: RunContext) -> list[str]:
    """List the rows of the manifest that were rejected in a file on the store; return a sentence, if there are any."""
    rejects, store_uri = context.jobs.rejects, context.settings.store.uri
    if rejects.is_empty() or store_uri is None:
        return []
    uri = rejected_uri(store_uri, context.run.run_id)
    retry_outage(lambda: context.objects.replace(uri, rejected_csv(rejects)))
    rows = pluralize(len(rejects), "row")
    first = f"row {rejects['row'][0]} ({rejects['job_id'][0]!r}): {rejects['reason'][0]}"
    warning = f"{rows} of the manifest rejected, such as {first} All are listed in {uri}"
    get_run_logger().warning("%s", warning)
    return [warning]


@contextmanager
def _interruption_recorded(context: RunContext) -> Iterator[None]:
    """Record why a run was interrupted, if the database is available."""
    try:
        yield
    except BaseException as error:
        with suppress(TransientError):
            if isinstance(error, Exception):
                message = error.message if isinstance(error, ReelabelError) else f"{type(error).__name__}: {error}"
                close_run(context.database, context.run.run_id, state="failed", message=message)
            else:
                cancel_run(context.database, context.run.run_id)
        raise
