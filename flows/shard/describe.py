"""The Prefect task that describes shards: from their videos to the rows of their descriptions."""

from __future__ import annotations

import logging
import time
from collections import Counter
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

from flows.shard.report import ShardReport, record_descriptions, shard_in_progress, write_ended
from flows.shard.retry import retry_faults
from infra.database.connect import require_writes
from infra.errors import EngineLostError
from infra.logs import in_context
from reelabel.errors import InternalError, JobError, StoreUnavailableError, TransientError
from reelabel.sources.object_info import redact_uri
from reelabel.unexpected import failing_alone
from tasks.description.cost import DescriptionCost
from tasks.domain import Failure, RunPhase, WallClockProfile
from tasks.domain.cost import tallied
from tasks.results.write import ShardResults

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor
    from typing import TypeVar

    from reelabel.sources.object_store import ObjectInfo
    from tasks.description.described import DescribedVideo
    from tasks.description.describer import VideoDescriber
    from tasks.domain import Job, Shard
    from tasks.embedding.encoder import Encoder
    from tasks.embedding.vector_file import ShardVectors
    from tasks.plans.lease import Lease
    from tasks.results.write import ShardWriter

    Video = TypeVar("Video", bound=DescribedVideo | None)

_LOG = logging.getLogger("reelabel")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptionContext:
    """What shards are described with: the describer, the writer and the threads.

    Attributes:
        workers: Threads, each of which describes a video.
        gpus: Returns the number of GPUs that the encoder holds.
        spent_ms: Milliseconds so far by phase, into which `RunPhase.DECODE` is split.
    """

    describer: VideoDescriber
    encoder: Encoder
    writer: ShardWriter
    workers: Executor
    profile: WallClockProfile = field(default_factory=WallClockProfile)
    gpus: Callable[[], int] = int
    spent_ms: Counter[RunPhase] = field(default_factory=Counter, repr=False)

    def lap(self) -> dict[str, float]:
        """Return milliseconds by part since the last lap."""
        self.profile.split(RunPhase.DECODE, dict(self.spent_ms))
        return self.profile.lap()


@task(task_run_name="describe-shard-{index}", cache_policy=NO_CACHE, persist_result=False)
def describe_shard(
    index: int,  # noqa: ARG001
    shard: Shard,
    lease: Lease,
    context: DescriptionContext,
) -> ShardReport:
    """Describe a shard, and write the rows of its jobs and its end in one transaction.

    A bad video fails its own jobs, not the shard. Safe to run again: videos that are embedded are not embedded again.

    Raises:
        LeaseLostError: Another worker has the shard; nothing was written.
        TransientError: A service is unavailable; nothing was written.
    """
    services: dict[type[TransientError], Callable[[], object]] = {
        StoreUnavailableError: partial(context.describer.embedder.extractor.check_stores, shard.video_uris),
        EngineLostError: context.encoder.info,
    }
    writes: dict[type[TransientError], Callable[[], object]] = {
        TransientError: partial(require_writes, context.writer.engine)
    }
    with shard_in_progress("infer"):
        ended, report = retry_faults(partial(_describe, shard, context), services)
        return retry_faults(partial(_write, replace(ended, lease=lease), report, context), writes)


def _describe(shard: Shard, context: DescriptionContext) -> tuple[ShardResults, ShardReport]:
    extractor = context.describer.embedder.extractor
    began_s = time.time()
    with context.profile.doing(RunPhase.DECODE):
        known = extractor.objects.stat_many(shard.video_uris)
        vectors, read_ms = _read_vectors(shard, context)
        outcomes = _describe_all(shard, context, known, vectors)
        with suppress(InternalError), failing_alone("Writing the vectors of the shard"):
            if vectors:
                context.describer.embedder.cache.write_shard(vectors)
    described = [each for each in outcomes if not isinstance(each, Failure)]
    failures = [each for each in outcomes if isinstance(each, Failure)]
    ended = ShardResults(results=(), failures=failures, descriptions=described)
    _log_rewritten(described)
    cost = sum((each.cost for each in described), DescriptionCost(cache_read_ms=read_ms))
    report = _report(shard, ended, cost=cost, between_s=(began_s, time.time()))
    context.spent_ms.update(
        {
            RunPhase.FETCH: round(cost.fetch_ms),
            RunPhase.DECODE: round(cost.decode_ms + cost.scenes_ms + cost.describe_ms),
            RunPhase.CACHE_WRITE: round(cost.cache_write_ms),
            RunPhase.CACHE_READ: round(cost.cache_read_ms),
        }
    )
    return ended, report


def _write(ended: ShardResults, report: ShardReport, context: DescriptionContext) -> ShardReport:
    writer = context.writer
    ended, report, write_ms = write_ended(
        ended, report, writer=writer, profile=context.profile, lap=context.lap, gpus=context.gpus()
    )
    record_descriptions(ended.descriptions, ended.failures, dataset=writer.run.dataset, write_ms=write_ms)
    return report


def _log_rewritten(described: Sequence[DescribedVideo]) -> None:
    for video in described:
        if video.rewritten:
            _LOG.warning("%s: %s", redact_uri(video.job.video_uri), video.rewritten)


def _read_vectors(shard: Shard, context: DescriptionContext) -> tuple[ShardVectors | None, float]:
    started, embedder = time.perf_counter(), context.describer.embedder
    vectors = None
    with suppress(InternalError), failing_alone("Reading the vectors of the shard"):
        key = embedder.shard_key(shard.jobs)
        vectors = embedder.cache.read_shard(key) if key else None
    return vectors, (time.perf_counter() - started) * 1e3


def _describe_all(
    shard: Shard, context: DescriptionContext, known: dict[str, ObjectInfo], vectors: ShardVectors | None
) -> list[DescribedVideo | Failure]:
    describer = context.describer
    ended: list[DescribedVideo | Failure | Future[DescribedVideo | Failure]] = []
    for job in shard.jobs:
        info = known.get(job.video_uri)
        described = None
        if info and vectors:
            described = _failing(job, shard.index, partial(describer.describe_stored, job, shard.index, info, vectors))
        describe = partial(describer.describe, job, shard.index, info, vectors)
        ended.append(described or context.workers.submit(in_context(partial(_failing, job, shard.index, describe))))
    return [each.result() if isinstance(each, Future) else each for each in ended]


def _failing(job: Job, shard_index: int, describe: Callable[[], Video]) -> Video | Failure:
    try:
        with failing_alone(f"The description of {redact_uri(job.video_uri)}"):
            return describe()
    except JobError as error:
        return Failure.of(error, job, shard_index, fingerprint=error.fingerprint)


def _report(shard: Shard, ended: ShardResults, *, cost: DescriptionCost, between_s: tuple[float, float]) -> ShardReport:
    described = ended.descriptions
    tally = {
        "shards_done": 1,
        **ended.counts,
        "videos_extracted": sum(not video.was_cached for video in described),
        "videos_cached": sum(video.was_cached for video in described),
        "videos_rewritten": sum(bool(video.rewritten) for video in described),
        **tallied("stage_ms", cost.by_stage()),
    }
    return ShardReport(index=shard.index, tally=tally, between_s={"infer": between_s})
