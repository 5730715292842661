"""The flow `backfill`: answer selected jobs again."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from prefect import State, flow
from prefect.task_runners import ThreadPoolTaskRunner

from flows.run.descriptions import prepare_descriptions
from flows.run.execute import execute_run
from flows.run.flow_run import name_of_current
from flows.run.forecast import forecast
from flows.run.parameters import EMPTY_SELECTION, NO_OVERRIDES, Dataset, Jobs, Manifest, Overrides
from flows.run.pipeline import MAX_TASKS
from flows.run.questions import prepare_questions
from flows.run.request import RunRequest
from flows.run.result import completed_state
from flows.run.selection import JobSelector, find_base_run, read_ids
from flows.run.sentence import fail_with_message
from infra.settings import load_settings
from reelabel.sources.object_store import ObjectStore
from tasks.database.schema import prepare_database

if TYPE_CHECKING:
    from infra.settings import Settings
    from tasks.results.selection import Selection


@flow(
    name="backfill",
    description="Answer selected jobs of a manifest again, by id or by outcome.",
    flow_run_name=lambda: name_of_current("backfill"),
    task_runner=ThreadPoolTaskRunner(max_workers=MAX_TASKS),  # type: ignore[arg-type]
    validate_parameters=False,
)
@fail_with_message
def backfill(
    manifest: Manifest,
    job_ids: list[str] = [],  # noqa: B006 - a form's default; never changed
    jobs: Jobs = EMPTY_SELECTION,
    *,
    ids_file: str | None = None,
    force: bool = False,
    dry_run: bool = False,
    dataset: Dataset = None,
    overrides: Overrides = NO_OVERRIDES,
) -> State[str]:
    """Answer selected jobs again, or describe them again; return the audit's sentence.

    The spec is that of the last run of the whole manifest, of the one marked as its reference, or of the named run.
    Overrides make a new spec, whose answers are stored next to the earlier ones; descriptions keep theirs.

    Args:
        manifest: Parquet file of jobs, or a glob: a path, or s3://bucket/jobs/*.parquet.
        job_ids: Ids of jobs to answer.
        jobs: Jobs to answer, selected by outcome.
        ids_file: Text file with more ids, one per line: a path, or s3://bucket/ids.txt.
        force: Also answer jobs that have a valid label.
        dry_run: Say what would be answered, and how long it may take; answer nothing.
        dataset: Name within which job ids are unique; if empty, that of the earlier run, or the manifest's file name.
        overrides: Model, sampling, prompts and chunks of this run; empty fields are as in the earlier run.
    """
    settings = load_settings()
    selector = _prepare(settings, manifest, job_ids, ids_file, jobs, dataset)
    if dry_run:
        host = socket.gethostname() if settings.run.executor == "local" else None
        lines = forecast(selector, manifest=manifest, overrides=overrides, force=force, host=host)
        return completed_state(" ".join(lines))
    request = RunRequest(
        kind="backfill",
        manifest=manifest,
        dataset=selector.earlier.dataset if selector.earlier.spec else dataset,
        overrides=overrides,
        base=selector.earlier.spec,
        describes=selector.earlier.describes,
        selector=selector,
        force=force,
        keep_going=selector.earlier.keep_going,
        limit=jobs.limit,
    )
    prepare = prepare_questions if request.has_questions else prepare_descriptions
    return completed_state(execute_run(request, selector.earlier.restored(settings), prepare))


def _prepare(
    settings: Settings,
    manifest: str,
    job_ids: list[str],
    ids_file: str | None,
    jobs: Selection,
    dataset: str | None,
) -> JobSelector:
    prepare_database(settings.database)
    more = read_ids(ids_file, ObjectStore(settings.store, settings.web)) if ids_file else []
    earlier = find_base_run(settings, manifest=manifest, dataset=dataset, run=jobs.run)
    return JobSelector(selection=jobs, named=[*job_ids, *more], earlier=earlier, settings=settings)
