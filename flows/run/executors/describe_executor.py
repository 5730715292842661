"""Describes the shards of a plan in this process: the encoder in its own, several shards at once."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from prefect import get_run_logger
from prefect.utilities.annotations import quote

from flows.run.artifacts import ProgressArtifact
from flows.run.describing import description_spec, open_describer
from flows.run.executors.local_executor import forget_results, work_ahead
from flows.run.executors.termination import ends_soon
from flows.shard.describe import DescriptionContext, describe_shard
from flows.shard.queue import ShardQueue, make_lease_keeper, shard_logged
from flows.shard.retry import retry_outage
from reelabel.sources.object_store import ObjectStore
from tasks.domain import RunPhase
from tasks.frame_cache.pool import decode_pool, video_store
from tasks.results.runs import update_run
from tasks.results.write import ShardWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from prefect.futures import PrefectFuture

    from flows.run.context import RunContext
    from flows.run.progress import Progress
    from flows.shard.queue import LeasedShard
    from flows.shard.report import ShardReport
    from reelabel_engine.protocol import EncoderInfo
    from tasks.description.pooling import EmbeddedBank
    from tasks.domain import WallClockProfile
    from tasks.embedding.encoder import Encoder
    from tasks.plans.plan import Plan

_SHOW_EVERY_S = 1.0


def describe_locally(
    plan: Plan,
    progress: Progress,
    context: RunContext,
    *,
    done_before: Sequence[int],
    encoder: Encoder,
    info: EncoderInfo,
    tags: EmbeddedBank,
    captions: EmbeddedBank,
) -> None:
    """Describe the shards of a plan until it is drained; other processes may work on it as well.

    Args:
        plan: The plan.
        progress: Counts what is done.
        context: The run.
        done_before: Unused: the run counts its own shards.
        encoder: Of the model; loads once a frame must be embedded.
        info: What it reports.
        tags: Bank of tags.
        captions: Bank of captions.

    Raises:
        TransientError: A service was unavailable for longer than the retries; leased shards are released.
        ModelError: The model cannot be loaded.
    """
    del done_before
    settings, database, ledger = context.settings, context.database, progress.ledger
    progress.frames_setting = "describe.frames_per_chunk"
    with ExitStack() as stack:
        with ledger.doing(RunPhase.LOAD):
            pool = stack.enter_context(decode_pool(settings, processes=progress.processes))
            keeper = stack.enter_context(make_lease_keeper(database, settings))
            objects = ObjectStore(settings.store)
            videos = video_store(settings, files=objects)
            stack.enter_context(ends_soon(videos, objects))
            source = ShardQueue.of_plan(plan, keeper, objects=objects, seal=settings.store.seal, database=database)
            leasing = iter(source)
            first = list(islice(leasing, 1))
            if not first:  # other workers have finished the plan meanwhile
                return
        progress.start_cpu_clock()
        _note_load(encoder, progress)
        run = replace(context.run, versions=context.run.versions | info.versions)
        workers = ThreadPoolExecutor(progress.processes * (1 + settings.extract.lookahead_shards))
        stack.callback(workers.shutdown, wait=False, cancel_futures=True)
        describing = DescriptionContext(
            describer=open_describer(
                settings,
                pool,
                encoder,
                info,
                spec=description_spec(context.spec),
                banks=(tags, captions),
                stores=(videos, objects),
                charge=partial(_answering, encoder, ledger),
            ),
            encoder=encoder,
            writer=ShardWriter(database, run),
            workers=workers,
            ledger=ledger,
            gpus=lambda: encoder.loaded.gpus if encoder.loaded else 0,
        )
        artifact = stack.enter_context(ProgressArtifact(total=plan.jobs))
        reports = _describe_shards(
            chain(first, leasing), source, describing, max_concurrent=settings.describe.concurrent_shards
        )
        shown_s = -math.inf

        def show() -> None:
            retry_outage(partial(update_run, database, run.run_id, versions=run.versions, **progress.columns()))
            artifact.update(progress.jobs_ended)

        for report in reports:
            _note_load(encoder, progress)
            progress.add(report)
            if time.monotonic() - shown_s > _SHOW_EVERY_S:
                shown_s = time.monotonic()
                show()
        show()


def _note_load(encoder: Encoder, progress: Progress) -> None:
    """Record and log that the encoder was loaded, once it is."""
    info = encoder.loaded
    if info is None or "engine start" in progress.stage_ms:
        return
    progress.gpus = info.gpus
    progress.stage_ms["engine start"] = info.start_ms
    get_run_logger().info("The model is ready after %.1f s.", info.start_ms / 1e3)


@contextmanager
def _answering(encoder: Encoder, ledger: WallClockProfile) -> Iterator[None]:
    """Measure the time in which the encoder works, and apart from it that of loading it."""
    if encoder.loaded is None:
        with ledger.doing(RunPhase.LOAD):
            encoder.info()
    with ledger.doing(RunPhase.ANSWER):
        yield


def _describe_shards(
    shards: Iterable[LeasedShard | None], source: ShardQueue, context: DescriptionContext, *, max_concurrent: int
) -> Iterator[ShardReport]:
    """Describe shards, several at once, so that the encoder has work while rows are written."""

    def submit(leased: LeasedShard) -> PrefectFuture[ShardReport]:
        forget_results()
        with shard_logged(leased, None):
            arguments = (quote(leased.shard), quote(leased.lease), quote(context))
            future: PrefectFuture[ShardReport] = describe_shard.submit(  # type: ignore[call-overload]
                leased.lease.shard_index, *arguments
            )
            return future

    def settle(leased: LeasedShard, future: PrefectFuture[ShardReport]) -> Iterator[ShardReport]:
        report = source.run_or_release(leased, future.result)
        if report:
            source.keeper.forget(leased.lease)
            with shard_logged(leased, None):
                get_run_logger().info("%s", report)
            yield report

    return work_ahead(shards, submit, settle, max_concurrent=max_concurrent)
