"""The Prefect tasks of one shard: extraction on CPUs, inference on the engine."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from flows.shard.answering import ShardOutcome
from flows.shard.chunks import cut_into_chunks, merge_ended
from flows.shard.extract import ViewStream, extract_views
from flows.shard.infer import escalate, infer_views
from flows.shard.metrics import record_results, shard_in_progress
from flows.shard.report import make_shard_report
from flows.shard.retry import RETRY_DELAYS_S, await_recovery, is_ending, retry_faults
from infra.database.connect import require_writes
from infra.logs import IS_OUTAGE
from reelabel.errors import DiskFullError, StoreUnavailableError, TransientError
from tasks.domain import RunPhase, group_by_views

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

    from prefect import Task
    from prefect.client.schemas.objects import State, TaskRun

    from flows.shard.answering import InferenceContext
    from flows.shard.chunks import EndedJobs
    from flows.shard.report import ShardReport
    from reelabel.frames.extractor import FrameExtractor
    from tasks.domain import Failure, Shard, View
    from tasks.plans.extracted import ExtractedShard
    from tasks.plans.lease import Lease
    from tasks.results.write import RunKey

_LOG = logging.getLogger("reelabel")


def is_transient(_task: Task[..., object], _run: TaskRun, state: State) -> bool:
    """Tell Prefect to retry transient errors only, and none once the flow is ending."""
    error = state.result(raise_on_failure=False)
    if not isinstance(error, TransientError) or error.retries_exhausted or is_ending():
        return False
    if isinstance(error, DiskFullError):
        get_run_logger().warning("%s Retrying.", error.message, extra={IS_OUTAGE: True})
    return True


# Options of tasks that work on shards.
SHARD_TASK: dict[str, Any] = {
    "retries": len(RETRY_DELAYS_S),
    "retry_delay_seconds": [*RETRY_DELAYS_S],
    "retry_condition_fn": is_transient,
    "cache_policy": NO_CACHE,
    "persist_result": False,
}


@task(task_run_name="extract-shard-{index}", **SHARD_TASK)
def extract_shard(
    index: int,  # noqa: ARG001
    shard: Shard,
    make_extractor: Callable[[], FrameExtractor],
    open_workers: Callable[[], AbstractContextManager[Executor]],
    stream: ViewStream | None = None,
) -> ExtractedShard:
    """Cache the frames of a shard's videos, several at once.

    A bad video fails its own jobs, not the shard. Safe to run again: cached videos are skipped.

    Args:
        index: Index of the shard.
        shard: The shard.
        make_extractor: Returns the extractor of its videos.
        open_workers: Opens the threads to prepare them in.
        stream: Receives each view as soon as it is ready.
    """
    with shard_in_progress("extract"), open_workers() as workers:
        extractor, stream = make_extractor(), stream or ViewStream()
        with await_recovery({StoreUnavailableError: partial(extractor.check_stores, shard.video_uris)}):
            chunked = stream.begin(partial(cut_into_chunks, shard, extractor, workers=workers))
            shown = group_by_views(chunked.cut.shard.jobs, extractor.sampling)
            views = tuple(dict.fromkeys(chain.from_iterable(shown)))
            stream.expect(len(views))
            extracted = extract_views(shard, views, extractor, workers=workers, stream=stream, chunked=chunked)
        stream.end(extracted)
        return extracted


@task(task_run_name="infer-shard-{index}", **SHARD_TASK)
def infer_shard(
    index: int, shard: Shard, stream: ViewStream, lease: Lease, context: InferenceContext
) -> ShardReport | None:
    """Answer a shard, and write the results of its jobs and the end of the shard in one transaction.

    Views are processed as they become ready.

    Returns:
        The shard's report; None if its extraction failed, in which case nothing was written.

    Raises:
        LeaseLostError: Another worker has the shard; nothing was written.
    """
    outcome = ShardOutcome(index=index)
    check_stores = partial(context.extractor.check_stores, shard.video_uris)
    with shard_in_progress("infer"), await_recovery({StoreUnavailableError: check_stores}):
        with context.profile.doing(RunPhase.DECODE):
            cut = stream.wait_for_jobs()
        if cut is not None:
            answered = context.answered_chunks(cut)
            asked = [job for job in cut.shard.jobs if job.job_id not in answered]
            infer_views(stream, group_by_views(asked, context.spec.sampling), context, outcome)
        extracted = stream.extracted
        if cut is None or extracted is None:
            return None
        if context.escalate_below is not None:
            escalate(context, outcome, below=context.escalate_below)
        context.check_meaning(outcome.results)
        context.confirm_model()
        started = time.perf_counter()
        with context.profile.doing(RunPhase.DATABASE):
            lap_ms = context.lap()
            facts = {"wall_ms": lap_ms, "gpus": context.gpus}
            try:
                ended = merge_ended(cut, outcome, answered, context)
                report = make_shard_report(extracted, outcome, ended, context.spec.sampling)
                ended, report = _write(ended, report, context, lease=lease, facts=facts)
            except BaseException:
                context.profile.give_back(lap_ms)  # to be charged to the next attempt or shard
                raise
    write_ms = (time.perf_counter() - started) * 1e3
    _record_results(ended, outcome.read_ms, context.writer.run, write_ms=write_ms)
    return replace(report, stage_ms=report.stage_ms | {"database": write_ms})


def _write(
    ended: EndedJobs, report: ShardReport, context: InferenceContext, *, lease: Lease, facts: dict[str, Any]
) -> tuple[EndedJobs, ShardReport]:
    """Write what a shard's jobs ended with, and its report with some more facts; return both as written."""
    write = partial(
        context.writer.write,
        ended.results,
        ended.failures,
        chunks=ended.chunks,
        lease=lease,
        report=asdict(report) | facts,
    )
    # Retried, so that computed answers are not lost.
    refused = retry_faults(write, partial(require_writes, context.writer.engine))
    if refused:
        ended = ended.with_refused(refused)
        report = replace(report, labels=len(ended.results), failures=len(ended.failures))
    return ended, report


def _record_results(ended: EndedJobs, read_ms: Mapping[View, float], run: RunKey, *, write_ms: float) -> None:
    """Record metrics and log the failures of a shard, once its rows are written."""
    record_results(
        ended.results,
        ended.failures,
        dataset=run.dataset,
        read_ms=read_ms.values(),
        write_ms=write_ms,
    )
    log_failures(ended.failures, run)


def log_failures(failures: Sequence[Failure], run: RunKey) -> None:
    """Log the failures of a shard, once its rows are written."""
    for failure in failures:
        known = {"run": str(run.run_id), "job": failure.job.job_id, "code": failure.code}
        _LOG.warning("Job %s failed: %s", failure.job.job_id, failure.message, extra=known)
