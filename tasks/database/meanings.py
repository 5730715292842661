"""What the columns of jobs and runs mean, of those that no record describes: their comments in the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Table

# Of a column's name in all tables, or of one table's column.
_MEANINGS = {
    "dataset": "In which job ids are unique.",
    "job_id": "Of the manifest.",
    "spec_id": "Model, sampling and prompt: a row of `reelabel.spec`.",
    "job_digest": "The version of the question.",
    "answer": "The known answer of the manifest; null if it has none.",
    "task": "Of the manifest; null if it has none.",
    "subtask": "Of the manifest; null if it has none.",
    "label": "The choice with the highest probability; null for an answer in words.",
    "probabilities": "Of each choice, in the order of the manifest; null for an answer in words.",
    "margin": "Probability of the label minus that of the runner-up; null for an answer in words.",
    "entropy_nats": "Entropy of the probabilities, at most ln(number of choices); null for an answer in words.",
    "routed_by": "Why a dense sampler was used: `task`, `coverage` or `margin`; else empty.",
    "copied_from": "Job whose answer it has, as their videos are near-duplicates; null if it was asked itself.",
    "run_id": "The run that wrote the row.",
    "shard_index": "The shard of its plan.",
    "fence": "Token of the lease under which the row was written; a row is never replaced under a lower one.",
    "host": "The machine that wrote the row.",
    "created_at": "When the row was written.",
    "stage": "Where the job failed: `fetch`, `decode`, `cache`, `prompt` or `inference`.",
    "code": "A stable code of the failure.",
    "message": "What is wrong and what to do, in a sentence.",
    "attempts": "How often the job has failed in a row, from 1.",
    "failure.source_fingerprint": "Version of the video; null if it could not be reached.",
    "chunk.chunk": "Its number, from 0.",
    "chunk.start_s": "Start of its part of the video; null for the video's.",
    "chunk.end_s": "End of its part of the video; null for the video's.",
    "chunk.label": "The choice with the highest probability; null if the chunk failed.",
    "chunk.code": "A stable code of the failure; null if the chunk has a label.",
    "run.run_id": "The run.",
    "run.dataset": "The dataset that it answered.",
    "run.spec_id": "Its spec; `reelabel.run_spec` has all, if it was restarted with another.",
    "run.manifest_uri": "The manifest.",
    "run.native_sampler": "The sampler that the model was trained with, if it is known.",
    "run.kind": "`classify`, `describe` or `backfill`.",
    "run.state": "`running`, `done`, `failed`, `cancelled` or `lost`.",
    "run.message": "Why it ended so, or a warning.",
    "run.jobs_total": "Jobs of the manifest or selection.",
    "run.jobs_rejected": "Rejected rows of the manifest.",
    "run.jobs_skipped": "Jobs that had ended before.",
    "run.jobs_labelled": "Jobs that got a label, or a description.",
    "run.jobs_failed": "Jobs that failed.",
    "run.videos_extracted": "Videos that were decoded.",
    "run.videos_cached": "Videos found in the cache.",
    "run.videos_rewritten": "Videos decoded again, as their cached file could not be used.",
    "run.shards_total": "Shards of its plan.",
    "run.shards_done": "Those of them that have ended.",
    "run.stage_ms": "Milliseconds of work by stage, summed over videos and jobs.",
    "run.wall_ms": "Milliseconds of wall-clock time by what the engine did or waited for; the parts add up.",
    "run.engines": "Engines that answered.",
    "run.gpus": "Their GPUs.",
    "run.prompt_tokens": "Tokens of all prompts.",
    "run.cached_tokens": "Those of them served from the prefix cache.",
    "run.jobs_per_s": "Jobs per second for which the engine was loaded.",
    "run.jobs_per_hour_held": "Jobs per hour for which a GPU was held.",
    "run.gpu_hours": "Hours for which GPUs were held, all together.",
    "run.cpu_hours": "Hours of processes that fetched and decoded videos, and of engines without a GPU.",
    "run.cost": "What these cost, by the prices in `[cost]`; null without prices. Runs that share a plan on remote "
    "workers each have the cost of all that they waited for.",
    "run.bottleneck": "What limits it, in a sentence.",
    "run.coverage": "Videos answered from keyframes (`videos`), and those to which each reason of coverage applies.",
    "run.versions": "Of Reelabel and of what the run used.",
    "run.host": "The machine on which it was started.",
    "run.process": "Its process, by which a killed one is noticed.",
    "run.started_at": "When it started, with its setup.",
    "run.seen_at": "Its heartbeat.",
    "run.ended_at": "When it ended; null while it runs.",
    "run.exported_at": "When its rows were written to `results.export_uri`; null if they were not.",
    "run.reference_at": "When it was marked as the reference of its manifest; null if it was not.",
}


def describe_columns(table: Table) -> None:
    """Set the comments of a table's columns that have none."""
    for column in table.c:
        column.comment = column.comment or _MEANINGS.get(f"{table.name}.{column.name}") or _MEANINGS.get(column.name)
