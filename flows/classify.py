"""The flow `classify`: answer a manifest."""

from __future__ import annotations

from prefect import State, flow
from prefect.task_runners import ThreadPoolTaskRunner

from flows.run.execute import execute_scheduled
from flows.run.flow_run import scheduled_run_name
from flows.run.parameters import NO_OVERRIDES, Dataset, Manifest, Overrides
from flows.run.pipeline import MAX_TASKS
from flows.run.questions import prepare_questions
from flows.run.request import RunRequest
from flows.run.sentence import fail_with_message
from infra.settings.types import Timezone


@flow(
    name="classify",
    description="Answer every job of a manifest that has no valid label yet.",
    flow_run_name=lambda: scheduled_run_name("classify"),
    task_runner=ThreadPoolTaskRunner(max_workers=MAX_TASKS),  # type: ignore[arg-type]
    validate_parameters=False,
)
@fail_with_message
def classify(
    manifest: Manifest,
    dataset: Dataset = None,
    *,
    force: bool = False,
    keep_going: bool = False,
    overrides: Overrides = NO_OVERRIDES,
    timezone: Timezone = "UTC",
    may_be_empty: bool = False,
) -> State[str]:
    """Answer every job of a manifest that has no valid label yet; return the audit's sentence.

    Args:
        manifest: Parquet file of jobs, or a glob: a path, or s3://bucket/jobs/*.parquet. Here and in the dataset,
            {scheduled_date} or {scheduled_date:%Y/%m} is replaced by the day for which the run was scheduled.
        dataset: Name within which job ids are unique; if empty, the manifest's file name, or the name of its folder
            for *.parquet; with {scheduled_date} in the manifest, one for each date.
        force: Also answer jobs that have a valid label.
        overrides: Model, sampling, prompts and chunks of this run; empty fields take the settings.
        timezone: Time zone of {scheduled_date}, such as Europe/Berlin.
        keep_going: Answer the valid rows of a manifest, and list the others with their reasons, instead of failing.
        may_be_empty: Complete instead of failing if no manifest is found.
    """
    request = RunRequest(
        kind="classify",
        manifest=manifest,
        dataset=dataset,
        overrides=overrides,
        shared=not force,
        force=force,
        keep_going=keep_going,
    )
    return execute_scheduled(request, prepare_questions, timezone=timezone, may_be_empty=may_be_empty)
