"""Describes the shards of a plan in this process: towers in their own, several shards at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from prefect import get_run_logger
from prefect.utilities.annotations import quote

from flows.run.artifacts import ProgressArtifact
from flows.run.executors.local_executor import forget_results, open_extractor, work_ahead
from flows.run.executors.termination import ends_soon
from flows.run.executors.towers import open_embedder
from flows.shard.describe import DescriptionContext, describe_shard
from flows.shard.logged import shard_logged
from flows.shard.queue import ShardQueue, make_lease_keeper
from flows.shard.retry import retry_outage
from infra.telemetry import start_metrics
from reelabel.sources.object_store import ObjectStore
from tasks.description.describer import VideoDescriber
from tasks.description.scene_file import SceneFiles
from tasks.domain import DescribeSpec, RunPhase
from tasks.embedding.video import frame_pixels
from tasks.frame_cache.pool import decode_pool
from tasks.plans.lease import Work
from tasks.plans.plan import is_drained
from tasks.results.runs import update_run
from tasks.results.write import ShardWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from prefect.futures import PrefectFuture

    from flows.run.context import RunContext
    from flows.run.progress import Progress
    from flows.shard.queue import LeasedShard
    from flows.shard.report import ShardReport
    from reelabel.pool.decode_pool import DecodePool
    from tasks.description.pooling import EmbeddedBank
    from tasks.domain import WallClockProfile
    from tasks.embedding.backend import EmbeddingBackend
    from tasks.embedding.protocol import TowersInfo
    from tasks.plans.plan import Plan


def describe_locally(
    plan: Plan,
    progress: Progress,
    context: RunContext,
    *,
    done_before: Sequence[int],
    towers: EmbeddingBackend,
    tags: EmbeddedBank,
    captions: EmbeddedBank,
) -> None:
    """Describe the shards of a plan until it is drained; other processes may work on it as well.

    Args:
        plan: The plan.
        progress: Counts what is done.
        context: The run.
        done_before: Unused: the run counts its own shards.
        towers: Of the model; started here, unless they are.
        tags: Bank of tags.
        captions: Bank of captions.

    Raises:
        TransientError: A service was unavailable for longer than the retries; leased shards are released.
        ModelError: The model cannot be loaded.
    """
    del done_before
    settings, database, ledger = context.settings, context.database, progress.ledger
    progress.frames_setting = "describe.frames_per_chunk"
    start_metrics(settings.metrics)
    with ExitStack() as stack:
        with ledger.doing(RunPhase.LOAD):
            towers.start()
            pool = stack.enter_context(decode_pool(settings, processes=progress.processes))
            keeper = stack.enter_context(make_lease_keeper(database, settings))
            stack.enter_context(ends_soon())
            source = ShardQueue(
                keeper=keeper,
                objects=ObjectStore(settings.store),
                seal=settings.store.seal,
                database=database,
                work=Work.BOTH,
                plans=lambda: [plan],
                has_ended=lambda _: is_drained(database, plan.plan_id),
            )
            leasing = iter(source)
            first = list(islice(leasing, 1))
            if not first:  # other workers have finished the plan meanwhile
                return
            info = towers.wait_ready()
        progress.gpus = info.gpus
        progress.start_cpu_clock()
        progress.stage_ms["engine start"] = info.start_ms
        run = replace(context.run, versions=context.run.versions | info.versions)
        workers = ThreadPoolExecutor(progress.processes * (1 + settings.extract.lookahead_shards))
        stack.callback(workers.shutdown, wait=False, cancel_futures=True)
        describing = DescriptionContext(
            describer=_describer(context, pool, towers, info, ledger, tags=tags, captions=captions),
            towers=towers,
            writer=ShardWriter(database, run),
            workers=workers,
            ledger=ledger,
            gpus=info.gpus,
        )
        artifact = ProgressArtifact(total=plan.jobs)
        reports = _describe_shards(
            chain(first, leasing), source, describing, max_concurrent=settings.describe.concurrent_shards
        )
        for report in reports:
            progress.add(report)
            retry_outage(partial(update_run, database, run.run_id, versions=run.versions, **progress.columns()))
            artifact.update(progress.jobs_ended)


def _describe_shards(
    shards: Iterable[LeasedShard | None], source: ShardQueue, context: DescriptionContext, *, max_concurrent: int
) -> Iterator[ShardReport]:
    """Describe shards, several at once, so that the towers have work while rows are written."""

    def submit(leased: LeasedShard) -> PrefectFuture[ShardReport]:
        arguments = (quote(leased.shard), quote(leased.lease), quote(context))
        with shard_logged(leased, None):
            future: PrefectFuture[ShardReport] = describe_shard.submit(leased.shard.index, *arguments)  # type: ignore[call-overload]
        return future

    def settle(leased: LeasedShard, future: PrefectFuture[ShardReport]) -> Iterator[ShardReport]:
        forget_results()
        report = source.run_or_release(leased, future.result)
        if report:
            source.keeper.forget(leased.lease)
            with shard_logged(leased, None):
                get_run_logger().info("%s", report)
            yield report

    return work_ahead(shards, submit, settle, max_concurrent=max_concurrent)


def _describer(
    context: RunContext,
    pool: DecodePool,
    towers: EmbeddingBackend,
    info: TowersInfo,
    ledger: WallClockProfile,
    *,
    tags: EmbeddedBank,
    captions: EmbeddedBank,
) -> VideoDescriber:
    settings, spec = context.settings, context.spec
    assert isinstance(spec, DescribeSpec)
    assert settings.store.uri is not None
    objects, seal = ObjectStore(settings.store), settings.store.seal
    sampling = spec.sampling(max_pixels=frame_pixels(info))
    extractor = open_extractor(settings, pool, sampling, keep_bytes=settings.model.batch_mib * 1024**2)
    charge = partial(ledger.doing, RunPhase.ANSWER)
    embedder = open_embedder(settings, extractor, towers, info, spec=spec, charge=charge)
    scene_files = SceneFiles(objects=objects, root_uri=settings.store.uri, seal=seal)
    return VideoDescriber(embedder=embedder, scene_files=scene_files, spec=spec, tags=tags, captions=captions)
