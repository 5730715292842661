"""The Prefect tasks of one shard: extraction on CPUs, inference on the engine."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

from flows.arriving import Arriving
from flows.asking import Endings, ask, ask_again
from flows.extracting import extract_views
from flows.metrics import count_endings, under_way
from flows.patience import RETRY_DELAYS_S, outlasting, persistently
from flows.shard_report import report_on
from infra.database import require_writes
from infra.errors import ServerUnavailableError, StoreUnavailableError, TransientError
from tasks.domain import Part, jobs_by_view

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

    from prefect import Task
    from prefect.client.schemas.objects import State, TaskRun

    from flows.asking import Answering
    from flows.shard_report import ShardReport
    from tasks.domain import Shard
    from tasks.frames.prepare import Preparer
    from tasks.plans.extracted import ExtractedShard
    from tasks.plans.lease import Lease
    from tasks.results.write import RunKey

_LOG = logging.getLogger("reelabel")
_RETRIES = len(RETRY_DELAYS_S)


def is_transient(_task: Task[..., object], _run: TaskRun, state: State) -> bool:
    """Tell Prefect to retry transient errors only."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, TransientError) and not error.was_waited_for


@task(
    task_run_name="extract-shard-{index}",
    retries=_RETRIES,
    retry_delay_seconds=[*RETRY_DELAYS_S],
    retry_condition_fn=is_transient,
    cache_policy=NO_CACHE,
    persist_result=False,
)
def extract_shard(
    index: int,  # noqa: ARG001
    shard: Shard,
    find_preparer: Callable[[], Preparer],
    open_workers: Callable[[], AbstractContextManager[Executor]],
    arriving: Arriving | None = None,
) -> ExtractedShard:
    """Cache the frames of a shard's videos, several at once.

    A bad video fails its own jobs, not the shard. Safe to run again: cached videos are skipped.

    Args:
        index: Index of the shard.
        shard: The shard.
        find_preparer: Returns the preparer of its videos.
        open_workers: Opens the threads to prepare them in.
        arriving: Receives each view as soon as it is ready.
    """
    with under_way("extract"), open_workers() as workers:
        preparer, arriving = find_preparer(), arriving or Arriving()
        views = jobs_by_view(shard.jobs, preparer.sampling)
        with outlasting({StoreUnavailableError: partial(preparer.reach_stores, shard.video_uris)}):
            extracted = extract_views(shard, views, preparer, workers=workers, arriving=arriving)
        arriving.end(extracted)
        return extracted


@task(
    task_run_name="infer-shard-{index}",
    retries=_RETRIES,
    retry_delay_seconds=[*RETRY_DELAYS_S],
    retry_condition_fn=is_transient,
    cache_policy=NO_CACHE,
    persist_result=False,
)
def infer_shard(index: int, shard: Shard, arriving: Arriving, lease: Lease, answering: Answering) -> ShardReport | None:
    """Answer a shard, and write the results of its jobs and the end of the shard in one transaction.

    Views are processed as they become ready.

    Returns:
        The shard's report; None if its extraction failed, in which case nothing was written.

    Raises:
        LeaseLostError: Another worker has the shard; nothing was written.
    """
    endings = Endings(index=index)
    services: dict[type[TransientError], Callable[[], object]] = {
        StoreUnavailableError: partial(answering.preparer.reach_stores, shard.video_uris),
        ServerUnavailableError: answering.engine.wait_ready,
    }
    with under_way("answer"), outlasting(services):
        ask(arriving, jobs_by_view(shard.jobs, answering.spec.sampling), answering, endings)
        extracted = arriving.extracted
        if extracted is None:
            return None
        if answering.ask_again_below is not None:
            ask_again(answering, endings, below=answering.ask_again_below)
        started = time.perf_counter()
        with answering.ledger.doing(Part.DATABASE):
            report = report_on(extracted, endings, answering.spec.sampling)
            lap_ms = answering.lap()
            stored = asdict(report) | {"wall_ms": lap_ms, "gpus": answering.gpus}
            write = partial(answering.writer.write, endings.results, endings.failures, lease=lease, report=stored)
            try:
                persistently(
                    write, partial(require_writes, answering.writer.engine)
                )  # not to lose answers already computed
            except BaseException:
                answering.ledger.give_back(lap_ms)  # to be charged to the next attempt or shard
                raise
    write_ms = (time.perf_counter() - started) * 1e3
    _record_results(endings, answering.writer.run, write_ms=write_ms)
    return replace(report, stage_ms=report.stage_ms | {"database": write_ms})


def _record_results(endings: Endings, run: RunKey, *, write_ms: float) -> None:
    """Record metrics and log the failures of a shard, once its rows are written."""
    count_endings(
        endings.results,
        endings.failures,
        dataset=run.dataset,
        read_ms=endings.read_ms.values(),
        write_ms=write_ms,
    )
    for failure in endings.failures:
        known = {"run": str(run.run_id), "shard": endings.index, "job": failure.job.job_id, "code": failure.code}
        _LOG.warning("Job %s failed: %s", failure.job.job_id, failure.message, extra=known)
