"""One run from its manifest to its audit: what `classify` and `backfill` share."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from prefect import get_run_logger

from flows.artifacts import publish_results
from flows.cost import cost_lines
from flows.elsewhere import work_elsewhere
from flows.ending import RunEnding
from flows.page import leave_page
from flows.patience import patiently
from flows.planning import Planner, end_plan
from flows.prepared import prepared
from flows.progress import Progress
from flows.pulse import alive
from flows.verdicts import warn_of_verdicts
from flows.work import work_here
from infra.errors import NotReconciledError, ReelabelError, TransientError
from tasks.domain import Part
from tasks.results.audit import audit_jobs
from tasks.results.runs import cancel_run, close_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flows.prepared import PreparedRun
    from flows.request import RunRequest
    from infra.settings import Settings
    from tasks.plans.plan import Plan
    from tasks.results.audit import AuditReport


def execute_run(request: RunRequest, settings: Settings) -> RunEnding:
    """Carry out a run inside a Prefect flow.

    Everything that can be wrong with the request is found before the first row is written, but for
    a model that turns out not to load.

    Raises:
        ManifestError: The manifest cannot be used.
        ModelError: The model cannot be used.
        ConfigurationError: A service is missing or refuses.
        NotReconciledError: The run ended, but some jobs have no row.
        TransientError: A service went away for longer than the retries; run again to go on.
    """
    progress = Progress(processes=settings.extract.processes or os.cpu_count() or 1)
    with ExitStack() as stack:
        with progress.ledger.doing(Part.SETUP):
            ready = stack.enter_context(prepared(request, settings))
        with _breaking_off_recorded(ready):
            report = _ask(ready, progress)
            columns = _record(ready, progress, report)
        _show(ready, report, columns)
        return RunEnding(asked=progress.jobs_ended, report=report)


def _ask(ready: PreparedRun, progress: Progress) -> AuditReport:
    """Plan, have everything asked, and audit it."""
    planner, run = Planner.of(ready), ready.run
    with alive(ready.database, run.run_id, progress, ready.settings.notify):
        with progress.ledger.doing(Part.SETUP):
            plan = planner.plan()
        while plan:
            _carry_out(plan, progress, ready, done_before=planner.done_before)
            # Of a plan that was joined, some jobs may have changed since it was made.
            plan = planner.plan() if plan.run_id != run.run_id else None
    with progress.ledger.doing(Part.AUDIT):
        audit = partial(audit_jobs, ready.database, dataset=run.dataset, spec_id=run.spec_id)
        return patiently(lambda: audit(jobs=planner.answers_for.parts()))


def _carry_out(plan: Plan, progress: Progress, ready: PreparedRun, *, done_before: Sequence[int]) -> None:
    """Have a plan worked on until it is drained, here or elsewhere."""
    settings, database, run, request = ready.settings, ready.database, ready.run, ready.request
    is_here = settings.run.executor == "local"
    try:
        if is_here:
            work_here(plan, progress, run=run, spec=ready.spec, card=ready.card, settings=settings, database=database)
        else:
            work_elsewhere(
                plan,
                progress,
                done_before=done_before,
                run_id=run.run_id,
                model=request.model,
                settings=settings,
                database=database,
            )
    except BaseException as error:
        # What is shared waits for the next run; but workers must not go on with what its user has stopped.
        is_stopped = not is_here and not isinstance(error, Exception)
        if is_stopped or not plan.shared:
            with suppress(TransientError):
                end_plan(database, ready.objects, plan, state="dropped")
        raise
    patiently(partial(end_plan, database, ready.objects, plan, state="done"))


def _record(ready: PreparedRun, progress: Progress, report: AuditReport) -> dict[str, Any]:
    """Record how the run ended; gives the columns of its row."""
    # Jobs that others have asked meanwhile are as those that had ended before; a few may have been asked twice.
    columns = progress.columns() | {"jobs_skipped": max(0, ready.jobs.rows - progress.jobs_ended)}
    state = "done" if report.is_reconciled else "failed"
    patiently(partial(close_run, ready.database, ready.run.run_id, state=state, message=str(report), **columns))
    return columns


def _show(ready: PreparedRun, report: AuditReport, columns: dict[str, Any]) -> None:
    """Show how the run ended.

    Raises:
        NotReconciledError: Some jobs have no row.
    """
    get_run_logger().info("%s", " ".join(filter(None, (str(report), columns["bottleneck"]))))
    publish_results(
        ready.run.run_id,
        dataset=ready.run.dataset,
        report=report,
        cost=cost_lines(columns),
        warnings=warn_of_verdicts(columns["verdicts"]),
        page=leave_page(ready.database, ready.run.run_id, ready.settings),
    )
    if not report.is_reconciled:
        raise NotReconciledError(str(report))


@contextmanager
def _breaking_off_recorded(ready: PreparedRun) -> Iterator[None]:
    """Record why a run broke off, as far as the database takes it."""
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
