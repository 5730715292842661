"""Comments of the columns that no record describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Table

# By column name, or by table and column name.
_MEANINGS = {
    "dataset": "Name within which job ids are unique.",
    "job_id": "Id of the job in the manifest.",
    "spec_id": "Model, sampling and prompt: a row of `reelabel.spec`.",
    "job_digest": "Digest of the question.",
    "answer": "Known answer in the manifest; null if it has none.",
    "task": "Task in the manifest; null if it has none.",
    "subtask": "Subtask in the manifest; null if it has none.",
    "label": "The choice with the highest probability; null for an answer in words.",
    "probabilities": "Probability of each choice, in the order of the manifest; null for an answer in words.",
    "margin": "Probability of the label minus that of the runner-up; null for an answer in words.",
    "entropy_nats": "Entropy of the probabilities, at most ln(number of choices); null for an answer in words.",
    "routed_by": "Why a dense sampler was used: `task`, `coverage` or `margin`; otherwise empty.",
    "copied_from": "Job whose answer was copied, because its video is a near-duplicate; null for all others.",
    "run_id": "The run that wrote the row.",
    "shard_index": "The shard of its plan.",
    "fence": "Fencing token of the lease under which the row was written; a lower one never replaces the row.",
    "host": "The machine that wrote the row.",
    "created_at": "When the row was written.",
    "stage": "Where the job failed: `fetch`, `decode`, `cache`, `prompt` or `inference`.",
    "code": "Stable code of the failure.",
    "message": "What is wrong, and what to do.",
    "attempts": "Number of consecutive failures of the job, from 1.",
    "failure.source_fingerprint": "Version of the video; null if it could not be reached.",
    "chunk.chunk": "Number of the chunk, from 0.",
    "chunk.start_s": "Start of the chunk in seconds; null for the start of the video.",
    "chunk.end_s": "End of the chunk in seconds; null for the end of the video.",
    "chunk.label": "The choice with the highest probability; null if the chunk failed.",
    "chunk.code": "Stable code of the failure; null if the chunk has a label.",
    "run.run_id": "Id of the run.",
    "run.dataset": "Dataset of the run.",
    "run.spec_id": "Spec of the run; `reelabel.run_spec` lists all, if it was restarted with another.",
    "run.manifest_uri": "URI of the manifest.",
    "run.native_sampler": "Sampler that the model was trained with; null if unknown.",
    "run.kind": "`classify`, `describe` or `backfill`.",
    "run.state": "`running`, `done`, `failed`, `cancelled` or `lost`.",
    "run.message": "Reason for the state, or a warning.",
    "run.jobs_total": "Jobs of the manifest or selection.",
    "run.jobs_rejected": "Rejected rows of the manifest.",
    "run.jobs_skipped": "Jobs that were already finished.",
    "run.jobs_labelled": "Jobs with a label, text, data or a description.",
    "run.jobs_failed": "Jobs that failed.",
    "run.videos_extracted": "Videos that were decoded.",
    "run.videos_cached": "Videos found in the cache.",
    "run.videos_rewritten": "Videos decoded again because their cached file could not be used.",
    "run.shards_total": "Shards of the plan.",
    "run.shards_done": "Finished shards of the plan.",
    "run.stage_ms": "Milliseconds of work by stage, summed over videos and jobs.",
    "run.wall_ms": "Milliseconds of wall-clock time by what the engine did or waited for; the parts add up to the "
    "total.",
    "run.engines": "Engines that answered.",
    "run.gpus": "GPUs of these engines.",
    "run.prompt_tokens": "Tokens of all prompts.",
    "run.cached_tokens": "Prompt tokens served from the prefix cache.",
    "run.jobs_per_s": "Jobs per second while the engine was loaded.",
    "run.jobs_per_hour_held": "Jobs per GPU-hour.",
    "run.gpu_hours": "GPU-hours from the start of the engines to their end.",
    "run.cpu_hours": "Core-hours of processes that fetched and decoded videos, and of engines without a GPU.",
    "run.cost": "Cost of these hours, by the prices in `[cost]`; null without prices. Runs that share a plan on remote "
    "workers are each charged for all shards that they waited for.",
    "run.bottleneck": "What limits the run's speed.",
    "run.coverage": "Number of videos answered from keyframes (`videos`), and of those to which each coverage reason "
    "applies.",
    "run.versions": "Versions of Reelabel and of its dependencies.",
    "run.host": "Machine on which the run was started.",
    "run.process": "Process of the run, to detect that it was killed.",
    "run.started_at": "When the run started, including its setup.",
    "run.seen_at": "Last heartbeat of the run.",
    "run.ended_at": "When the run ended; null while it is running.",
    "run.exported_at": "When the run's rows were written to `results.export_uri`; null if they were not.",
    "run.reference_at": "When the run was marked as the reference of its manifest; null if it was not.",
}


def describe_columns(table: Table) -> None:
    """Set the comments of a table's columns that have none."""
    for column in table.c:
        column.comment = column.comment or _MEANINGS.get(f"{table.name}.{column.name}") or _MEANINGS.get(column.name)
