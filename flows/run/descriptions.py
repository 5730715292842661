"""Runs that describe videos: `describe`, and backfills of its jobs; image-text encoders in processes of their own."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from prefect import get_run_logger
from prefect.utilities.annotations import quote

from flows.run.artifacts import ProgressArtifact
from flows.run.describing import embed_bank, open_describer, resolve_description
from flows.run.pipeline import cancel_on_exit, forget_results, work_ahead
from flows.run.request import Prepared
from flows.shard.describe import DescriptionContext, describe_shards
from flows.shard.queue import ShardQueue, make_lease_keeper, shard_logged
from flows.shard.retry import retry_outage
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from tasks.domain import DescribeSpec, RunPhase
from tasks.embedding.backend import towers_card
from tasks.embedding.bank_file import BankFiles
from tasks.embedding.opened import towers_on_demand
from tasks.frame_cache.pool import decode_pool, video_store
from tasks.results.runs import update_run
from tasks.results.write import ShardWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from prefect.futures import PrefectFuture
    from sqlalchemy import Engine

    from flows.run.progress import Progress
    from flows.run.request import Run, RunRequest
    from flows.shard.describe import Described
    from flows.shard.queue import LeasedShard
    from flows.shard.report import ShardReport
    from infra.settings import Settings
    from tasks.description.banks import Bank
    from tasks.description.pooling import EmbeddedBank
    from tasks.domain import WallClockProfile
    from tasks.embedding.on_demand import TowersOnDemand
    from tasks.manifest.table import JobTable
    from tasks.model.identity import ModelCard
    from tasks.plans.plan import Plan

_SHOW_EVERY_S = 1.0
# A task should take about as long; with more shards, others that work on the plan would find none left.
_TASK_S, _MAX_SHARDS = 2.0, 16


@contextmanager
def prepare_descriptions(
    request: RunRequest, settings: Settings, _jobs: JobTable, _database: Engine, profile: WallClockProfile
) -> Iterator[Prepared]:
    """Resolve the spec, and embed its banks unless an earlier run has; the encoders stay loaded for the plan.

    Raises:
        ConfigurationError: A bank or a method cannot be used, or the earlier spec cannot be reproduced.
        ModelError: The model cannot be used.
    """
    card, spec, banks = resolve_request(request, settings)
    with embedded_banks(settings, card, spec, banks, profile) as (encoders, tags, captions):
        execute = partial(_execute_here, encoders=encoders, banks=(tags, captions))
        yield Prepared(spec=spec, card=card, execute=execute)


def resolve_request(request: RunRequest, settings: Settings) -> tuple[ModelCard, DescribeSpec, Mapping[str, Bank]]:
    """Return the model's card, the spec, and its banks by digest, of which a backfill reads none.

    A backfill has the spec of the earlier run, whose model must still be there.
    """
    assert request.describes is not None
    base = request.base
    if not isinstance(base, DescribeSpec):
        resolved = resolve_description(request.describes, settings)
        return resolved.card, resolved.spec, resolved.banks
    if request.overrides.model_dump(exclude={"model"}, exclude_defaults=True):
        raise ConfigurationError(
            "A backfill of descriptions keeps the options of the earlier run; to change them, describe the manifest "
            "again, which reuses its embeddings."
        )
    name = request.overrides.model or (base.model.name if base.model.revision else None)
    card = towers_card(settings, name, revision=base.model.revision)
    if card.identity != base.model:
        raise ConfigurationError(
            f"The earlier run used {base.model.name}, but describe.model is now {card.identity.name}, or another "
            "version of it; name the model's folder, or restore describe.model."
        )
    return card, base, {}


@contextmanager
def embedded_banks(
    settings: Settings, card: ModelCard, spec: DescribeSpec, banks: Mapping[str, Bank], profile: WallClockProfile
) -> Iterator[tuple[TowersOnDemand, EmbeddedBank, EmbeddedBank]]:
    """Yield the encoders, and the embedded banks of tags and of captions; the encoders are loaded on demand."""
    files = BankFiles.of(settings.store, python=settings.model.python)
    with closing(towers_on_demand(settings, card, charge=partial(profile.doing, RunPhase.LOAD))) as encoders:
        tags, captions = (
            embed_bank(banks.get(digest) or files.read_texts(digest), encoders, files, spec.model)
            for digest in (spec.tags, spec.captions)
        )
        yield encoders, tags, captions


def _execute_here(
    run: Run,
    plan: Plan,
    progress: Progress,
    _done_before: Sequence[int],
    *,
    encoders: TowersOnDemand,
    banks: tuple[EmbeddedBank, EmbeddedBank],
) -> None:
    settings, database, profile, spec = run.settings, run.database, progress.profile, run.spec
    assert isinstance(spec, DescribeSpec)
    progress.frames_setting = "describe.frames_per_chunk"
    with ExitStack() as stack:
        with profile.doing(RunPhase.LOAD):
            pool = stack.enter_context(decode_pool(settings, processes=progress.processes))
            keeper = stack.enter_context(make_lease_keeper(database, settings))
            objects = ObjectStore(settings.store)
            videos = video_store(settings, files=objects)
            stack.enter_context(cancel_on_exit(videos, objects))
            queue = ShardQueue.of_plan(plan, keeper, objects=objects, seal=settings.store.seal, database=database)
            leasing = iter(queue)
            first = list(islice(leasing, 1))
            if not first:  # other workers have finished the plan meanwhile
                return
            info = encoders.wait_ready()
        progress.start_cpu_clock()
        _note_load(encoders, progress)
        key = replace(run.key, versions=run.key.versions | info.versions)
        workers = ThreadPoolExecutor(progress.processes * (1 + settings.extract.lookahead_shards))
        stack.callback(workers.shutdown, wait=False, cancel_futures=True)
        context = DescriptionContext(
            describer=open_describer(
                settings,
                pool,
                encoders,
                info,
                spec=spec,
                banks=banks,
                stores=(videos, objects),
                charge=partial(_answering, encoders, profile),
            ),
            towers=encoders,
            writer=ShardWriter(database, key),
            workers=workers,
            profile=profile,
            gpus=lambda: encoders.gpus,
        )
        artifact = stack.enter_context(ProgressArtifact(total=plan.jobs))
        shown_s = float("-inf")

        def show() -> None:
            retry_outage(update_run, database, key.run_id, versions=key.versions, **progress.columns())
            artifact.update(progress.jobs_ended)

        for report in _describe_shards(
            chain(first, leasing), queue, context, max_concurrent=settings.describe.concurrent_shards
        ):
            _note_load(encoders, progress)
            progress.add(report)
            if time.monotonic() - shown_s > _SHOW_EVERY_S:
                shown_s = time.monotonic()
                show()
        show()


def _note_load(encoders: TowersOnDemand, progress: Progress) -> None:
    info = encoders.loaded
    if info is None or "engine start" in progress.stage_ms:
        return
    progress.gpus = info.gpus
    progress.stage_ms["engine start"] = info.start_ms
    get_run_logger().info("The model is ready after %.1f s.", info.start_ms / 1e3)


@contextmanager
def _answering(encoders: TowersOnDemand, profile: WallClockProfile) -> Iterator[None]:
    """Measure the time in which the encoders work, from when they are loaded."""
    encoders.wait_loaded()
    with profile.doing(RunPhase.ANSWER):
        yield


def _describe_shards(
    shards: Iterable[LeasedShard | None], queue: ShardQueue, context: DescriptionContext, *, max_concurrent: int
) -> Iterator[ShardReport]:
    grouping = Grouping()

    def submit(group: tuple[LeasedShard, ...]) -> tuple[PrefectFuture[list[Described]], float]:
        name = ", ".join(str(leased.lease.shard_index) for leased in group)
        future: PrefectFuture[list[Described]] = describe_shards.submit(name, quote(group), quote(context))  # type: ignore[call-overload]
        return future, time.monotonic()

    def settle(
        group: tuple[LeasedShard, ...], submitted: tuple[PrefectFuture[list[Described]], float]
    ) -> Iterator[ShardReport]:
        forget_results()
        future, began_s = submitted
        ended = future.result()
        grouping.learn(len(group), time.monotonic() - began_s)
        for leased, outcome in zip(group, ended, strict=True):
            if report := queue.run_or_release(leased, partial(_report_of, outcome)):
                queue.keeper.forget(leased.lease)
                with shard_logged(leased, None):
                    get_run_logger().info("%s", report)
                yield report

    return work_ahead(grouping.groups(shards), submit, settle, max_concurrent=max_concurrent)


def _report_of(outcome: Described) -> ShardReport:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


@dataclass(slots=True)
class Grouping:
    """How many shards a task describes: one, unless shards end faster than Prefect keeps account of tasks."""

    size: int = 1

    def groups(self, shards: Iterable[LeasedShard | None]) -> Iterator[tuple[LeasedShard, ...] | None]:
        """Yield groups of shards, and None whenever there is nothing to lease at the moment."""
        waiting: list[LeasedShard] = []
        for leased in shards:
            if leased is not None:
                waiting.append(leased)
            if waiting and (leased is None or len(waiting) >= self.size):
                yield tuple(waiting)
                waiting = []
            if leased is None:
                yield None
        if waiting:
            yield tuple(waiting)

    def learn(self, shards: int, took_s: float) -> None:
        """Adapt the size to how long some shards took."""
        self.size = min(_MAX_SHARDS, 2 * self.size, max(1, round(_TASK_S * shards / max(took_s, 1e-3))))
