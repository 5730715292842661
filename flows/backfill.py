"""The flow that asks chosen jobs again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefect import flow
from prefect.task_runners import ThreadPoolTaskRunner

from flows.parameters import AS_SET, WORDED_AS_SET, Dataset, Manifest, Model, NumFrames, Permutations
from flows.run import RunRequest, execute_run
from infra.errors import ConfigurationError
from infra.settings import PromptChoice, SamplingChoice, load_settings
from tasks.results.read import read_failures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine

    from tasks.domain import Job, RunSpec

_SHOWN_IDS = 5


@flow(
    name="backfill",
    description="Ask chosen jobs of a manifest again: by id, or those that failed.",
    flow_run_name="backfill-{manifest}",
    task_runner=ThreadPoolTaskRunner(max_workers=4),  # type: ignore[arg-type]
)
def backfill(  # noqa: PLR0913 - a form's fields
    manifest: Manifest,
    job_ids: list[str] = [],  # noqa: B006 - a form's default; never changed
    dataset: Dataset = None,
    num_frames: NumFrames = None,
    sampling: SamplingChoice = AS_SET,
    model: Model = None,
    prompts: PromptChoice = WORDED_AS_SET,
    permutations: Permutations = None,
    *,
    failed: bool = False,
    force: bool = False,
) -> str:
    """Ask chosen jobs again; gives the audit's sentence.

    Args:
        manifest: Parquet file of jobs, or a glob of such: a path, or s3://bucket/jobs/*.parquet.
        job_ids: Jobs to ask again, by id; those with a valid label are left alone unless forced.
        dataset: Name under which job ids are unique; empty is the manifest's file name.
        num_frames: Frames shown to the model per video, 1 to 512; empty takes the setting (16).
        sampling: How frames are chosen; what is empty is as the settings have it.
        model: Model folder or hub name; empty takes the setting, or the tiny model that ships.
        prompts: What the model is told besides each row's question; what is empty is as the settings have it.
        permutations: Orders in which each question's choices are shown and averaged; empty takes the setting (1).
        failed: Ask again every job that ended as a failure.
        force: Ask again even where a valid label stands.
    """

    def select(
        jobs: Sequence[Job],
        pending: Sequence[Job],
        database: Engine,
        spec: RunSpec,
        dataset: str,
    ) -> list[Job]:
        chosen = set(job_ids)
        if failed:
            chosen |= set(read_failures(database, dataset=dataset, spec_id=spec.spec_id)["job_id"].to_list())
        return choose_jobs(jobs, pending, chosen=chosen, force=force)

    request = RunRequest(
        kind="backfill",
        manifest=manifest,
        dataset=dataset,
        num_frames=num_frames,
        sampling=sampling,
        model=model,
        prompts=prompts,
        permutations=permutations,
        select=select,
    )
    return str(execute_run(request, load_settings()))


def choose_jobs(jobs: Sequence[Job], pending: Sequence[Job], *, chosen: set[str], force: bool) -> list[Job]:
    """Pick the chosen jobs out of a manifest: those without a valid label, or all when forced.

    Raises:
        ConfigurationError: A chosen id is not in the manifest.
    """
    unknown = sorted(chosen - {job.job_id for job in jobs})
    if unknown:
        shown = ", ".join(unknown[:_SHOWN_IDS])
        raise ConfigurationError(f"{len(unknown):,} job ids are not in the manifest, such as {shown}; correct them.")
    return [job for job in (jobs if force else pending) if job.job_id in chosen]
