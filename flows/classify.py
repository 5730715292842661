"""The flow that answers a manifest."""

from __future__ import annotations

from dataclasses import replace

from prefect import flow
from prefect.task_runners import ThreadPoolTaskRunner

from flows.parameters import AS_SET, WORDED_AS_SET, Dataset, Manifest, Model, NumFrames, Permutations
from flows.run import RunRequest, execute_run
from infra.settings import PromptChoice, SamplingChoice, load_settings


@flow(
    name="classify",
    description="Answer every job of a manifest that has no valid label yet.",
    flow_run_name="classify-{manifest}",
    task_runner=ThreadPoolTaskRunner(max_workers=4),  # type: ignore[arg-type]
)
def classify(
    manifest: Manifest,
    dataset: Dataset = None,
    num_frames: NumFrames = None,
    sampling: SamplingChoice = AS_SET,
    model: Model = None,
    prompts: PromptChoice = WORDED_AS_SET,
    permutations: Permutations = None,
    *,
    force: bool = False,
) -> str:
    """Answer every job of a manifest that has no valid label yet; gives the audit's sentence.

    Args:
        manifest: Parquet file of jobs, or a glob of such: a path, or s3://bucket/jobs/*.parquet.
        dataset: Name under which job ids are unique; empty is the manifest's file name.
        num_frames: Frames shown to the model per video, 1 to 512; empty takes the setting (16).
        sampling: How frames are chosen; what is empty is as the settings have it.
        model: Model folder or hub name; empty takes the setting, or the tiny model that ships.
        prompts: What the model is told besides each row's question; what is empty is as the settings have it.
        permutations: Orders in which each question's choices are shown and averaged; empty takes the setting (1).
        force: Ask again even where a valid label stands.
    """
    request = RunRequest(
        kind="classify",
        manifest=manifest,
        dataset=dataset,
        num_frames=num_frames,
        sampling=sampling,
        model=model,
        prompts=prompts,
        permutations=permutations,
    )
    if force:
        request = replace(request, select=lambda jobs, *_: jobs)
    return str(execute_run(request, load_settings()))
