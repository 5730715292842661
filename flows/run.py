"""A run from manifest to audit, as shared by `classify` and `backfill`."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from prefect import get_run_logger

from flows.artifacts import publish_results
from flows.cost import cost_lines
from flows.elsewhere import execute_remotely
from flows.ending import RunResult
from flows.page import write_report_page
from flows.patience import retry_outage
from flows.planning import Planner, finish_plan
from flows.prepared import open_run_context
from flows.progress import Progress
from flows.pulse import heartbeat
from flows.verdicts import warn_of_coverage
from flows.work import execute_locally
from infra.errors import NotReconciledError, ReelabelError, TransientError
from tasks.domain import RunPhase
from tasks.results.audit import audit_jobs
from tasks.results.runs import cancel_run, close_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flows.prepared import RunContext
    from flows.request import RunRequest
    from infra.settings import Settings
    from tasks.plans.plan import Plan
    from tasks.results.audit import AuditReport


def execute_run(request: RunRequest, settings: Settings) -> RunResult:
    """Execute a run inside a Prefect flow.

    The request is validated before the first row is written; only a model that fails to load is found later.

    Raises:
        ManifestError: The manifest cannot be used.
        ModelError: The model cannot be used.
        ConfigurationError: A service is unreachable or refuses access.
        NotReconciledError: The run ended, but some jobs have no row.
        TransientError: A service was unavailable for longer than the retries; run again to continue.
    """
    progress = Progress(processes=settings.extract.processes or os.cpu_count() or 1)
    with ExitStack() as stack:
        with progress.ledger.doing(RunPhase.SETUP):
            ready = stack.enter_context(open_run_context(request, settings))
        with _interruption_recorded(ready):
            report = _ask(ready, progress)
            columns = _record(ready, progress, report)
        _publish(ready, report, columns)
        return RunResult(asked=progress.jobs_ended, report=report)


def _ask(ready: RunContext, progress: Progress) -> AuditReport:
    """Plan, execute the plan, and audit the result."""
    planner, run = Planner.of(ready), ready.run
    with heartbeat(ready.database, run.run_id, progress, ready.settings.notify):
        with progress.ledger.doing(RunPhase.SETUP):
            plan = planner.plan()
        while plan:
            _execute_plan(plan, progress, ready, done_before=planner.done_before)
            # Jobs may have changed since a joined plan was made.
            plan = planner.plan() if plan.run_id != run.run_id else None
    with progress.ledger.doing(RunPhase.AUDIT):
        audit = partial(audit_jobs, ready.database, dataset=run.dataset, spec_id=run.spec_id)
        return retry_outage(lambda: audit(jobs=planner.audited_jobs.parts()))


def _execute_plan(plan: Plan, progress: Progress, ready: RunContext, *, done_before: Sequence[int]) -> None:
    """Execute a plan until it is drained, with the local or the remote executor."""
    settings, database, run, request = ready.settings, ready.database, ready.run, ready.request
    is_here = settings.run.executor == "local"
    try:
        if is_here:
            execute_locally(
                plan, progress, run=run, spec=ready.spec, card=ready.card, settings=settings, database=database
            )
        else:
            execute_remotely(
                plan,
                progress,
                done_before=done_before,
                run_id=run.run_id,
                model=request.model,
                settings=settings,
                database=database,
            )
    except BaseException as error:
        # A shared plan is kept for the next run, but workers must not continue a run that its user has stopped.
        is_stopped = not is_here and not isinstance(error, Exception)
        if is_stopped or not plan.shared:
            with suppress(TransientError):
                finish_plan(database, ready.objects, plan, state="dropped")
        raise
    retry_outage(partial(finish_plan, database, ready.objects, plan, state="done"))


def _record(ready: RunContext, progress: Progress, report: AuditReport) -> dict[str, Any]:
    """Record how the run ended; return the columns of its row."""
    # Jobs answered by other runs meanwhile count as skipped; a few may have been answered twice.
    columns = progress.columns() | {"jobs_skipped": max(0, ready.jobs.rows - progress.jobs_ended)}
    state = "done" if report.is_reconciled else "failed"
    retry_outage(partial(close_run, ready.database, ready.run.run_id, state=state, message=str(report), **columns))
    return columns


def _publish(ready: RunContext, report: AuditReport, columns: dict[str, Any]) -> None:
    """Publish how the run ended.

    Raises:
        NotReconciledError: Some jobs have no row.
    """
    get_run_logger().info("%s", " ".join(filter(None, (str(report), columns["bottleneck"]))))
    publish_results(
        ready.run.run_id,
        dataset=ready.run.dataset,
        report=report,
        cost=cost_lines(columns),
        warnings=warn_of_coverage(columns["verdicts"]),
        page=write_report_page(ready.database, ready.run.run_id, ready.settings),
    )
    if not report.is_reconciled:
        raise NotReconciledError(str(report))


@contextmanager
def _interruption_recorded(ready: RunContext) -> Iterator[None]:
    """Record why a run was interrupted, if the database is available."""
    try:
        yield
    except BaseException as error:
        with suppress(TransientError):
            if isinstance(error, Exception):
                message = error.message if isinstance(error, ReelabelError) else f"{type(error).__name__}: {error}"
                close_run(ready.database, ready.run.run_id, state="failed", message=message)
            else:
                cancel_run(ready.database, ready.run.run_id)
        raise
