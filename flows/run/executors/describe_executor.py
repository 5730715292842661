"""Describes the shards of a plan in this process: towers in their own, several shards at once."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from prefect import get_run_logger
from prefect.utilities.annotations import quote

from flows.run.artifacts import ProgressArtifact
from flows.run.describing import description_spec, open_describer
from flows.run.executors.local_executor import forget_results, work_ahead
from flows.run.executors.termination import ends_soon
from flows.shard.describe import DescriptionContext, ShardGroup, describe_shards
from flows.shard.queue import ShardQueue, make_lease_keeper, shard_logged
from flows.shard.retry import retry_outage
from infra.errors import LeaseLostError
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
    from tasks.description.pooling import EmbeddedBank
    from tasks.domain import WallClockProfile
    from tasks.embedding.on_demand import TowersOnDemand
    from tasks.plans.plan import Plan

_SHOW_EVERY_S = 1.0
_CONCURRENT_SHARDS = 3
# A group should take about as long; with more shards, others that work on the plan would find none left.
_GROUP_S, _MOST_IN_A_GROUP = 2.0, 16


def describe_locally(
    plan: Plan,
    progress: Progress,
    context: RunContext,
    *,
    done_before: Sequence[int],
    towers: TowersOnDemand,
    tags: EmbeddedBank,
    captions: EmbeddedBank,
) -> None:
    """Describe the shards of a plan until it is drained; other processes may work on it as well.

    Args:
        plan: The plan.
        progress: Counts what is done.
        context: The run.
        done_before: Unused: the run counts its own shards.
        towers: Of the model; loaded once a frame must be embedded.
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
            info = towers.wait_ready()
        progress.start_cpu_clock()
        _note_load(towers, progress)
        run = replace(context.run, versions=context.run.versions | info.versions)
        workers = ThreadPoolExecutor(progress.processes * (1 + settings.extract.lookahead_shards))
        stack.callback(workers.shutdown, wait=False, cancel_futures=True)
        describing = DescriptionContext(
            describer=open_describer(
                settings,
                pool,
                towers,
                info,
                spec=description_spec(context.spec),
                banks=(tags, captions),
                stores=(videos, objects),
                charge=partial(_answering, towers, ledger),
            ),
            towers=towers,
            writer=ShardWriter(database, run),
            workers=workers,
            ledger=ledger,
            gpus=lambda: towers.gpus,
        )
        artifact = stack.enter_context(ProgressArtifact(total=plan.jobs))
        reports = _describe_shards(chain(first, leasing), source, describing, max_concurrent=_CONCURRENT_SHARDS)
        shown_s = -math.inf

        def show() -> None:
            retry_outage(partial(update_run, database, run.run_id, versions=run.versions, **progress.columns()))
            artifact.update(progress.jobs_ended)

        for report in reports:
            _note_load(towers, progress)
            progress.add(report)
            if time.monotonic() - shown_s > _SHOW_EVERY_S:
                shown_s = time.monotonic()
                show()
        show()


def _note_load(towers: TowersOnDemand, progress: Progress) -> None:
    """Record and log that the towers were loaded, once they are."""
    info = towers.loaded
    if info is None or "engine start" in progress.stage_ms:
        return
    progress.gpus = info.gpus
    progress.stage_ms["engine start"] = info.start_ms
    get_run_logger().info("The model is ready after %.1f s.", info.start_ms / 1e3)


@contextmanager
def _answering(towers: TowersOnDemand, ledger: WallClockProfile) -> Iterator[None]:
    """Measure the time in which the towers work, from when they are loaded."""
    towers.wait_loaded()
    with ledger.doing(RunPhase.ANSWER):
        yield


def _describe_shards(
    shards: Iterable[LeasedShard | None], source: ShardQueue, context: DescriptionContext, *, max_concurrent: int
) -> Iterator[ShardReport]:
    """Describe shards, several at once, so that the towers have work while rows are written."""
    grouping = _Grouping()

    def submit(group: ShardGroup) -> tuple[PrefectFuture[None], float]:
        arguments = (quote(group), quote(context))
        future: PrefectFuture[None] = describe_shards.submit(group.name, *arguments)  # type: ignore[call-overload]
        return future, time.monotonic()

    def settle(group: ShardGroup, submitted: tuple[PrefectFuture[None], float]) -> Iterator[ShardReport]:
        forget_results()
        future, began_s = submitted
        future.wait()
        grouping.learn(len(group.shards), time.monotonic() - began_s)
        for leased in group.not_begun():  # the shard before them has failed, and is released with its reason
            retry_outage(partial(source.keeper.release, leased.lease, message=""))
        for leased in group.begun():
            report = source.run_or_release(leased, partial(_report_of, group, leased, future))
            if report:
                source.keeper.forget(leased.lease)
                with shard_logged(leased, None):
                    get_run_logger().info("%s", report)
                yield report

    return work_ahead(grouping.groups(shards), submit, settle, max_concurrent=max_concurrent)


def _report_of(group: ShardGroup, leased: LeasedShard, future: PrefectFuture[None]) -> ShardReport:
    """Return what came of a shard.

    Raises:
        LeaseLostError: Another worker has it.
        TransientError: A service was unavailable.
    """
    if leased.lease.token not in group.ended:
        future.result()  # raises
    ended = group.ended[leased.lease.token]
    if isinstance(ended, LeaseLostError):
        raise ended
    return ended


@dataclass(slots=True)
class _Grouping:
    """How many shards a task describes: one, unless shards end faster than Prefect keeps account of tasks.

    Attributes:
        size: Of the next group.
    """

    size: int = 1

    def groups(self, shards: Iterable[LeasedShard | None]) -> Iterator[ShardGroup | None]:
        """Yield groups of shards, and None whenever there is nothing to lease at the moment."""
        waiting: list[LeasedShard] = []
        for leased in shards:
            if leased is not None:
                waiting.append(leased)
            if waiting and (leased is None or len(waiting) >= self.size):
                yield ShardGroup(tuple(waiting))
                waiting = []
            if leased is None:
                yield None
        if waiting:
            yield ShardGroup(tuple(waiting))

    def learn(self, shards: int, took_s: float) -> None:
        """Adapt the size to how long some shards took."""
        self.size = min(_MOST_IN_A_GROUP, 2 * self.size, max(1, round(_GROUP_S * shards / max(took_s, 1e-3))))
