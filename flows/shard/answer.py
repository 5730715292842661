"""Answers the jobs of a shard: in the task of a run, which writes their rows, or for a single request."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

from flows.shard.context import ShardOutcome
from flows.shard.extract import FrameStream, extract_jobs
from flows.shard.infer import ask_copies, escalate, infer_views
from flows.shard.report import make_shard_report, record_results, shard_in_progress, stage_ms_of, write_ended
from flows.shard.retry import retry_faults
from infra.database.connect import require_writes
from reelabel.errors import InternalError, StoreUnavailableError, TransientError
from reelabel.unexpected import failing_alone
from reelabel_engine.errors import InferenceError
from tasks.domain import Failure, JobResult, RunPhase, group_by_views
from tasks.domain.chunks import ChunkOutcome, merge_chunks
from tasks.results.write import ShardResults

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Executor

    from flows.shard.context import AnswerContext, InferenceContext
    from flows.shard.report import ShardReport
    from tasks.domain import Shard
    from tasks.domain.chunks import CutShard
    from tasks.plans.lease import Lease


@task(task_run_name="infer-shard-{index}", cache_policy=NO_CACHE, persist_result=False)
def infer_shard(
    index: int,  # noqa: ARG001
    shard: Shard,
    stream: FrameStream,
    lease: Lease,
    context: InferenceContext,
) -> ShardReport | None:
    """Answer a shard, and write the results of its jobs and the end of the shard in one transaction.

    Views are processed as they become ready. An attempt after a fault asks only about jobs that have no outcome yet.

    Returns:
        The shard's report; None if its extraction failed, in which case nothing was written.

    Raises:
        LeaseLostError: Another worker has the shard; nothing was written.
    """
    services = {
        StoreUnavailableError: partial(context.extractor.check_stores, shard.video_uris),
        TransientError: partial(require_writes, context.writer.engine),
    }
    attempt = partial(_infer, stream, lease, context, ShardOutcome(index=shard.index))
    with shard_in_progress("infer"):
        return retry_faults(attempt, services)


def _infer(stream: FrameStream, lease: Lease, context: InferenceContext, outcome: ShardOutcome) -> ShardReport | None:
    with context.profile.doing(RunPhase.DECODE):
        cut = stream.wait_for_jobs()
    if cut is None:
        return None
    ended_before = outcome.ended
    answered = {name: each for name, each in context.answered_chunks(cut).items() if name not in ended_before}
    unanswered = [job for job in cut.shard.jobs if job.job_id not in answered and job.job_id not in ended_before]
    infer_views(stream, group_by_views(unanswered, context.spec.sampling), context, outcome)
    if stream.extracted is None:
        return None
    escalate(context, outcome)
    ask_copies(cut.copies, context, outcome)  # of jobs that failed, in either pass, or whose videos were replaced
    escalate(context, outcome)  # those copies
    context.check_meaning(outcome.results)
    context.confirm_model()
    ended = replace(merge_ended(cut, outcome, answered, context), lease=lease)
    report = make_shard_report(stream.extracted, outcome, ended, context.spec.sampling)
    ended, report, write_ms = write_ended(
        ended, report, writer=context.writer, profile=context.profile, lap=context.lap, gpus=context.gpus
    )
    record_results(
        ended.results,
        ended.failures,
        answers=[result.answer for result in outcome.results],
        dataset=context.writer.run.dataset,
        read_ms=outcome.read_ms.values(),
        write_ms=write_ms,
    )
    return report


def answer_shard(shard: Shard, context: AnswerContext, *, workers: Executor) -> tuple[ShardResults, dict[str, float]]:
    """Extract and answer jobs of no run, as a run does; also return the milliseconds of each step.

    Raises:
        TransientError: The store or the engine is unavailable.
    """
    stream, outcome = FrameStream(), ShardOutcome(index=shard.index)
    _, shown = extract_jobs(shard, context.extractor, workers=workers, stream=stream)
    infer_views(stream, shown, context, outcome)
    escalate(context, outcome)
    cut = stream.wait_for_jobs()
    assert cut is not None
    return merge_ended(cut, outcome, {}, context), stage_ms_of(outcome)


def merge_ended(
    cut: CutShard, outcome: ShardOutcome, answered: Mapping[str, JobResult], context: AnswerContext
) -> ShardResults:
    """Give each job one outcome: merge those of its chunks, or copy the answer of its near-duplicate.

    `answered` has the answers of earlier runs, by chunk id.
    """
    rule = context.spec.chunk_rule
    if not cut.jobs or rule is None:
        first = [each for each in outcome.results if each.can_be_copied]
        copied = [each.copied_to(job) for each in first for job in cut.copies.get(each.job.job_id, ())]
        return ShardResults(results=[*outcome.results, *copied], failures=outcome.failures)
    known: dict[str, JobResult | Failure] = {**answered}
    known |= {each.job.job_id: each for each in outcome.results}
    known |= {each.job.job_id: each for each in outcome.failures}
    merged: list[JobResult | Failure] = []
    written: list[ChunkOutcome] = []
    for parts in cut.jobs.values():
        chunks: list[ChunkOutcome] = []
        found = {part.job_id: known.pop(part.job_id) for part in parts.chunks if part.job_id in known}
        try:
            with failing_alone(f"Merging the chunks of job {parts.job.job_id}", stage=InferenceError.stage):
                for number, part in enumerate(parts.chunks):
                    chunks.append(ChunkOutcome(job=parts.job, number=number, outcome=found[part.job_id]))
                merged.append(merge_chunks(parts, chunks, rule))
        except InternalError as error:
            merged.append(Failure.of(error, parts.job, outcome.index))
        if merged[-1].chunks:  # else its outcome follows from none of them
            written += chunks
    ended = [*known.values(), *merged]
    return ShardResults(
        results=[each for each in ended if isinstance(each, JobResult)],
        failures=[each for each in ended if isinstance(each, Failure)],
        chunks=written,
    )
