"""The flow `describe`: say what the videos of a manifest show."""

from __future__ import annotations

from prefect import State, flow
from prefect.task_runners import ThreadPoolTaskRunner

from flows.run.descriptions import prepare_descriptions
from flows.run.execute import execute_scheduled
from flows.run.flow_run import scheduled_run_name
from flows.run.parameters import NO_DESCRIBE_OPTIONS, Dataset, DescribeParameters, Manifest
from flows.run.pipeline import MAX_TASKS
from flows.run.request import RunRequest
from flows.run.sentence import fail_with_message
from infra.settings.types import Timezone


@flow(
    name="describe",
    description="Describe every video of a manifest that has no valid description yet: tags, caption, scenes.",
    flow_run_name=lambda: scheduled_run_name("describe"),
    task_runner=ThreadPoolTaskRunner(max_workers=MAX_TASKS),  # type: ignore[arg-type]
    validate_parameters=False,
)
@fail_with_message
def describe(
    manifest: Manifest,
    dataset: Dataset = None,
    *,
    force: bool = False,
    keep_going: bool = False,
    options: DescribeParameters = NO_DESCRIBE_OPTIONS,
    timezone: Timezone = "UTC",
    may_be_empty: bool = False,
) -> State[str]:
    """Describe every video of a manifest that has no valid description yet; return the audit's sentence.

    Args:
        manifest: Parquet file of jobs, or a glob: a path, or s3://bucket/jobs/*.parquet; only job_id and video_uri are
            needed. Here and in the dataset, {scheduled_date} or {scheduled_date:%Y/%m} is replaced by the day for which
            the run was scheduled.
        dataset: Name within which job ids are unique; if empty, the manifest's file name, or the name of its folder
            for *.parquet; with {scheduled_date} in the manifest, one for each date.
        force: Also describe videos that have a valid description.
        options: What videos are compared with, and how; empty fields take the settings.
        timezone: Time zone of {scheduled_date}, such as Europe/Berlin.
        keep_going: Describe the valid rows of a manifest, and list the others with their reasons, instead of failing.
        may_be_empty: Complete instead of failing if no manifest is found.
    """
    request = RunRequest(
        kind="describe",
        manifest=manifest,
        dataset=dataset,
        describes=options,
        shared=not force,
        force=force,
        keep_going=keep_going,
    )
    return execute_scheduled(request, prepare_descriptions, timezone=timezone, may_be_empty=may_be_empty)
