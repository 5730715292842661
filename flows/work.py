"""The work on plans in one process: shards extracted ahead, several of them answered at once."""

from __future__ import annotations

from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, cast

from prefect import get_run_logger
from prefect.utilities.annotations import quote

from flows.arriving import Arriving
from flows.artifacts import ProgressArtifact
from flows.asker import make_asker
from flows.asking import GROUPS_AT_ONCE, Answering
from flows.patience import patiently, waits_ended
from flows.shards import extract_shard, infer_shard
from flows.taking import HeldShard, ShardSource, make_keeper
from infra.objects import ObjectStore
from infra.telemetry import start_metrics
from tasks.domain import Part
from tasks.frames.cache import FrameCache
from tasks.frames.decoding import decode_pool, video_limits
from tasks.frames.prepare import Preparer
from tasks.plans.lease import Work
from tasks.plans.plan import is_drained
from tasks.results.routes import ask_again_below
from tasks.results.runs import update_run
from tasks.results.writer import ShardWriter
from tasks.video.verdict import Thresholds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prefect.futures import PrefectFuture
    from sqlalchemy import Engine

    from flows.progress import Progress
    from flows.shard_report import ShardReport
    from infra.settings import Settings
    from tasks.domain import RunSpec, Shard, TimeLedger
    from tasks.model.asker import Asker
    from tasks.model.identity import ModelCard
    from tasks.plans.extracted import ExtractedShard
    from tasks.plans.plan import Plan
    from tasks.results.write import RunKey
    from tasks.video.pool import DecodePool

    # What prepares videos, found where it is used.
    FindPreparer = Callable[[], Preparer]
    # Starts the extraction of a shard, by itself, what prepares its videos, and what hears of them; gives what waits
    # for its end.
    StartExtraction = Callable[[Shard, FindPreparer, Arriving], Callable[[], ExtractedShard]]

# Threads are made as they are needed: for shards extracted ahead, and for those at the engine.
MOST_TASKS = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracting:
    """A shard whose extraction has begun.

    Attributes:
        wait: Waits for its end; gives None where it came to nothing.
        arriving: What is ready of it, unless it is extracted in another process.
    """

    held: HeldShard
    wait: Callable[[], ExtractedShard | None]
    arriving: Arriving


def work_here(
    plan: Plan,
    progress: Progress,
    *,
    run: RunKey,
    spec: RunSpec,
    card: ModelCard,
    settings: Settings,
    database: Engine,
) -> None:
    """Extract and answer what is left of a plan, until nobody has anything left to do of it.

    Others may work on it as well. While the engine is on one shard, the CPUs are on the next.

    Raises:
        TransientError: A service went away for longer than the retries; what was leased is given back.
    """
    start_metrics(settings.metrics)
    ledger = progress.ledger
    with ExitStack() as stack:
        with ledger.doing(Part.LOAD):
            pool = stack.enter_context(decode_pool(settings, processes=progress.processes))
            engine = stack.enter_context(make_asker(card, settings, sampling=spec.sampling))
            preparer = make_preparer(settings, pool, spec, keep_bytes=settings.model.batch_mib * 1024**2)
            keeper = stack.enter_context(make_keeper(database, settings))
            stack.enter_context(waits_ended())
            source = ShardSource(
                keeper=keeper,
                objects=preparer.objects,
                database=database,
                work=Work.BOTH,
                plans=lambda: [plan],
                has_ended=lambda _: is_drained(database, plan.plan_id),
            )
            ahead = settings.extract.lookahead_shards
            start = stack.enter_context(extraction_here(progress.processes * (1 + ahead)))
            extracting = extract_ahead(source, lambda _: lambda: preparer, ahead=ahead, start=start)
            begun = list(islice(extracting, 1))
            if not begun:  # others have ended the plan meanwhile
                return
            info = engine.wait_ready()
        progress.gpus = info.gpus
        progress.note_loaded()
        progress.stage_ms["engine start"] = info.start_ms
        run = replace(run, versions=run.versions | info.versions)
        answering = make_answering(preparer, engine, run=run, spec=spec, settings=settings, database=database)
        answering = replace(answering, ledger=ledger)
        at_once = settings.model.max_concurrent_shards * engine.engines
        artifact = ProgressArtifact(total=plan.jobs)
        # What the engine was set to says how fast it was, never what it answered: of the run, not of its rows.
        versions = run.versions | ({"engine settings": info.tuning} if info.tuning else {})
        reports = answer_shards(chain(begun, extracting), source, lambda _: answering, ledger=ledger, at_once=at_once)
        for report in reports:
            progress.add(report)
            patiently(partial(update_run, database, run.run_id, versions=versions, **progress.columns()))
            artifact.update(progress.jobs_ended)
            get_run_logger().info("%s", report, extra={"shard": report.index})
        with ledger.doing(Part.UNLOAD):
            stack.close()


def answer_shards(
    extracting: Iterable[Extracting | None],
    source: ShardSource,
    answering_of: Callable[[Plan], Answering],
    *,
    ledger: TimeLedger,
    at_once: int,
) -> Iterator[ShardReport]:
    """Answer shards, several at once, so that the engine has the next one while an ended one is written."""
    spent_ms = Counter[Part]()
    under_way: deque[tuple[Extracting, PrefectFuture[ShardReport | None]]] = deque()

    def settle() -> Iterator[ShardReport]:
        each, future = under_way.popleft()
        extracted = each.wait()
        if extracted is None:
            future.wait()
            return
        spent_ms.update(extracted.spent_ms)
        ledger.split(Part.DECODE, spent_ms)
        report = source.attempt(each.held, future.result)
        if report:
            source.keeper.forget(each.held.lease)
            yield report

    for each in extracting:
        if each:
            held, answering = each.held, answering_of(each.held.plan)
            arguments = (quote(held.shard), quote(each.arriving), quote(held.lease), quote(answering))
            under_way.append((each, infer_shard.submit(held.shard.index, *arguments)))  # type: ignore[call-overload]
        # Where nothing is to be taken, what is under way here may be all that the plan waits for.
        if under_way and (each is None or len(under_way) == at_once):
            yield from settle()
    while under_way:
        yield from settle()


def extract_ahead(
    source: ShardSource, preparer_of: Callable[[Plan], FindPreparer], *, ahead: int, start: StartExtraction
) -> Iterator[Extracting | None]:
    """Give shards in their order as they are being extracted, with up to `ahead` more on their way.

    Where there is nothing to take at the moment, gives what is on its way, and then None.
    """
    on_its_way: deque[Extracting] = deque()
    for held in source:
        if held:
            arriving = Arriving()
            wait = start(held.shard, preparer_of(held.plan), arriving)
            on_its_way.append(Extracting(held=held, wait=partial(source.attempt, held, wait), arriving=arriving))
        if on_its_way and (held is None or len(on_its_way) > ahead):
            yield on_its_way.popleft()
        elif held is None:
            yield None
    yield from on_its_way


@contextmanager
def extraction_here(threads: int) -> Iterator[StartExtraction]:
    """Give what starts extractions in this process; videos are prepared in the order of their shards.

    Args:
        threads: Videos on their way at once.
    """
    workers = ThreadPoolExecutor(threads)

    def start(shard: Shard, preparer: FindPreparer, arriving: Arriving) -> Callable[[], ExtractedShard]:
        # Quoted, so that Prefect does not walk through every job looking for futures.
        arguments = (quote(shard), quote(preparer), quote(lambda: nullcontext(workers)), quote(arriving))
        future = extract_shard.submit(shard.index, *arguments)  # type: ignore[call-overload]
        future.add_done_callback(lambda _: arriving.end(None))  # however it ended
        return cast("Callable[[], ExtractedShard]", future.result)

    try:
        yield start
    finally:
        workers.shutdown(wait=False, cancel_futures=True)


def make_answering(
    preparer: Preparer,
    engine: Asker,
    *,
    run: RunKey,
    spec: RunSpec,
    settings: Settings,
    database: Engine,
) -> Answering:
    """Make what inference needs besides its shards, of videos as `preparer` prepares them."""
    return Answering(
        spec=spec,
        cache=preparer.cache,
        pool=preparer.pool,
        limits=preparer.limits,
        engine=engine,
        writer=ShardWriter(database, run),
        batch_bytes=settings.model.batch_mib * 1024**2 // (settings.model.max_concurrent_shards * GROUPS_AT_ONCE),
        preparer=preparer,
        ask_again_below=patiently(partial(ask_again_below, database, spec)),
    )


def make_preparer(settings: Settings, pool: DecodePool, spec: RunSpec, *, keep_bytes: int) -> Preparer:
    """Make what prepares videos as a spec wants them; up to `keep_bytes` of frame files wait in memory to be read."""
    objects = ObjectStore(settings.store, settings.web)
    assert settings.store.uri is not None
    return Preparer(
        objects=objects,
        cache=FrameCache(objects, settings.store.uri, keep_bytes=keep_bytes),
        pool=pool,
        sampling=spec.sampling,
        limits=video_limits(settings),
        stored_as=settings.store.encoding,
        allow_roots=settings.extract.allow_roots,
        thresholds=Thresholds.of(spec.sampling if spec.sampling.sampler == "auto" else settings.sampling),
    )
