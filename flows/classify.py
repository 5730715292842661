"""The flow `classify`: answer a manifest."""

from __future__ import annotations

from prefect import State, flow
from prefect.task_runners import ThreadPoolTaskRunner

from flows.ending import completed_state
from flows.parameters import DEFAULT_PROMPTS, DEFAULT_SAMPLING, Dataset, Manifest, Model, NumFrames, Permutations
from flows.request import RunRequest
from flows.run import execute_run
from flows.scheduled import render_scheduled, scheduled_run_name
from flows.work import MAX_TASKS
from infra.errors import ManifestMissingError
from infra.sampling_settings import SamplingOptions
from infra.schedule_settings import Timezone
from infra.settings import PromptOptions, load_settings


@flow(
    name="classify",
    description="Answer every job of a manifest that has no valid label yet.",
    flow_run_name=scheduled_run_name,
    task_runner=ThreadPoolTaskRunner(max_workers=MAX_TASKS),  # type: ignore[arg-type]
)
def classify(  # noqa: PLR0913 - a form's fields
    manifest: Manifest,
    dataset: Dataset = None,
    num_frames: NumFrames = None,
    sampling: SamplingOptions = DEFAULT_SAMPLING,
    model: Model = None,
    prompts: PromptOptions = DEFAULT_PROMPTS,
    permutations: Permutations = None,
    timezone: Timezone = "UTC",
    *,
    force: bool = False,
    may_be_empty: bool = False,
) -> State[str]:
    """Answer every job of a manifest that has no valid label yet; return the audit's sentence.

    Args:
        manifest: Parquet file of jobs, or a glob: a path, or s3://bucket/jobs/*.parquet. Here and in the dataset,
            {scheduled_date} or {scheduled_date:%Y/%m} is replaced by the day for which the run was scheduled.
        dataset: Name within which job ids are unique; if empty, the manifest's file name.
        num_frames: Frames per video, 1 to 512; if empty, the setting (16).
        sampling: How frames are chosen; empty fields take the settings.
        model: Model folder or hub name; if empty, the setting, or the tiny demo model.
        prompts: Prompt text besides each job's question; empty fields take the settings.
        permutations: Orders in which each question's choices are shown; if empty, the setting (1).
        timezone: Time zone of {scheduled_date}, such as Europe/Berlin.
        force: Also answer jobs that have a valid label.
        may_be_empty: Complete instead of failing if no manifest is found.
    """
    request = RunRequest(
        kind="classify",
        manifest=render_scheduled(manifest, timezone),
        dataset=render_scheduled(dataset, timezone) if dataset else None,
        num_frames=num_frames,
        sampling=sampling,
        model=model,
        prompts=prompts,
        permutations=permutations,
        shared=not force,
        force=force,
    )
    try:
        return completed_state(execute_run(request, load_settings()))
    except ManifestMissingError as error:
        if not may_be_empty:
            raise
        return completed_state(f"Nothing to do: {error.message}")
