"""The local executor: extract shards ahead, and infer several at once."""

from __future__ import annotations

import time
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar, cast

from prefect import get_run_logger
from prefect.context import FlowRunContext
from prefect.utilities.annotations import quote

from flows.run.artifacts import ProgressArtifact
from flows.run.executors.termination import ends_soon
from flows.run.spec import engine_settings
from flows.shard.answering import InferenceContext
from flows.shard.extract import ViewStream
from flows.shard.infer import MAX_CONCURRENT_GROUPS
from flows.shard.queue import LeasedShard, ShardQueue, make_lease_keeper, shard_logged
from flows.shard.retry import retry_outage
from flows.shard.tasks import extract_shard, infer_shard
from reelabel.sources.object_store import ObjectStore
from tasks.domain import RunPhase
from tasks.frame_cache.pool import decode_pool, open_extractor
from tasks.manifest.plan_file import read_media
from tasks.model.backend import backend_of, open_backend
from tasks.relevance import relevant_extraction
from tasks.results.evaluation.routes import escalation_margin
from tasks.results.runs import update_run
from tasks.results.write import ShardWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prefect.futures import PrefectFuture
    from sqlalchemy import Engine

    from flows.run.progress import Progress
    from flows.shard.report import ShardReport
    from infra.settings import Settings
    from reelabel.frames.extractor import FrameExtractor
    from tasks.domain import RunSpec, Shard, WallClockProfile
    from tasks.model.backend import InferenceBackend
    from tasks.model.identity import ModelCard
    from tasks.plans.extracted import ExtractedShard
    from tasks.plans.plan import Plan
    from tasks.results.write import RunKey

    # Returns the extractor, in the process that uses it.
    MakeExtractor = Callable[[], FrameExtractor]
    # Starts the extraction of a shard with an extractor and a stream; returns a function that waits for its end.
    StartExtraction = Callable[[Shard, MakeExtractor, ViewStream], Callable[[], ExtractedShard]]

Item = TypeVar("Item")
Submitted = TypeVar("Submitted")

# Threads are created on demand, for shards extracted ahead and for those at the engine.
MAX_TASKS = 96
_ROOM_POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardInExtraction:
    """A shard whose extraction has started.

    Attributes:
        wait: Waits for the extraction; returns None if it failed.
        stream: Stream of its ready views; unused if another process extracts it.
    """

    leased: LeasedShard
    wait: Callable[[], ExtractedShard | None]
    stream: ViewStream


def execute_locally(
    plan: Plan,
    progress: Progress,
    *,
    run: RunKey,
    spec: RunSpec,
    card: ModelCard,
    settings: Settings,
    database: Engine,
) -> None:
    """Extract and answer the shards of a plan until it is drained.

    Other processes may work on it as well. The CPUs extract the next shards while the engine answers one.

    Raises:
        TransientError: A service was unavailable for longer than the retries; leased shards are released.
    """
    ledger = progress.ledger
    with ExitStack() as stack:
        with ledger.doing(RunPhase.LOAD):
            pool = stack.enter_context(decode_pool(settings, processes=progress.processes))
            answering = engine_settings(settings, spec)
            objects = ObjectStore(settings.store)
            keep_bytes = settings.model.batch_mib * 1024**2
            extractor = open_extractor(settings, pool, spec.sampling, keep_bytes=keep_bytes, files=objects)
            if spec.relevance:  # before the engine, which takes what memory is left of a GPU
                extractor = stack.enter_context(relevant_extraction(settings, extractor, spec.relevance, files=objects))
            media = read_media(objects, plan.plan_uri, seal=settings.store.seal)
            opened = open_backend(backend_of(settings), card, answering, sampling=spec.sampling, media=media)
            backend = stack.enter_context(opened)
            keeper = stack.enter_context(make_lease_keeper(database, settings))
            stack.enter_context(ends_soon(extractor.objects, objects))
            source = ShardQueue.of_plan(plan, keeper, objects=objects, seal=settings.store.seal, database=database)
            ahead = settings.extract.lookahead_shards
            start = stack.enter_context(local_extraction(progress.processes * (1 + ahead)))
            extracting = extract_ahead(source, lambda _: lambda: extractor, ahead=ahead, start=start)
            first = list(islice(extracting, 1))
            if not first:  # other workers have finished the plan meanwhile
                return
            info = backend.wait_ready()
        progress.gpus = info.gpus
        progress.start_cpu_clock()
        progress.stage_ms["engine start"] = info.start_ms
        get_run_logger().info("The engine is ready after %.1f s.", info.start_ms / 1e3)
        run = replace(run, versions=run.versions | info.versions)
        context = make_inference_context(extractor, backend, run=run, spec=spec, settings=settings, database=database)
        context = replace(context, ledger=ledger)
        max_concurrent = settings.model.max_concurrent_shards * backend.engines
        artifact = stack.enter_context(ProgressArtifact(total=plan.jobs))
        # Engine tuning affects speed but not answers: recorded with the run, not with its rows.
        versions = run.versions | ({"engine settings": info.tuning} if info.tuning else {})
        reports = infer_shards(
            chain(first, extracting), source, lambda _: context, ledger=ledger, max_concurrent=max_concurrent
        )
        for report in reports:
            progress.add(report)
            retry_outage(partial(update_run, database, run.run_id, versions=versions, **progress.columns()))
            artifact.update(progress.jobs_ended)
        with ledger.doing(RunPhase.UNLOAD):
            stack.close()


def infer_shards(
    extracting: Iterable[ShardInExtraction | None],
    source: ShardQueue,
    context_of: Callable[[Plan], InferenceContext],
    *,
    ledger: WallClockProfile,
    max_concurrent: int,
) -> Iterator[ShardReport]:
    """Answer shards, several at once, so that the engine has work while results are written."""
    spent_ms = Counter[RunPhase]()

    def submit(each: ShardInExtraction) -> PrefectFuture[ShardReport | None]:
        leased, context = each.leased, context_of(each.leased.plan)
        arguments = (quote(leased.shard), quote(each.stream), quote(leased.lease), quote(context))
        with shard_logged(leased, "infer"):
            future: PrefectFuture[ShardReport | None] = infer_shard.submit(leased.shard.index, *arguments)  # type: ignore[call-overload]
        return future

    def settle(each: ShardInExtraction, future: PrefectFuture[ShardReport | None]) -> Iterator[ShardReport]:
        forget_results()
        extracted = each.wait()
        if extracted is None:
            future.wait()
            return
        spent_ms.update(extracted.spent_ms)
        ledger.split(RunPhase.DECODE, spent_ms)
        report = source.run_or_release(each.leased, future.result)
        if report:
            source.keeper.forget(each.leased.lease)
            with shard_logged(each.leased, "infer"):
                get_run_logger().info("%s", report)
            yield report

    return work_ahead(extracting, submit, settle, max_concurrent=max_concurrent)


def work_ahead(
    items: Iterable[Item | None],
    submit: Callable[[Item], Submitted],
    settle: Callable[[Item, Submitted], Iterator[ShardReport]],
    *,
    max_concurrent: int,
) -> Iterator[ShardReport]:
    """Work on items, several at once, and yield what the oldest ones give.

    Args:
        items: What to work on; None if there is nothing at the moment.
        submit: Starts work on an item.
        settle: Waits for its end, and yields its report, if it has one.
        max_concurrent: Maximum items in progress.
    """
    in_progress: deque[tuple[Item, Submitted]] = deque()
    for each in items:
        if each is not None:
            in_progress.append((each, submit(each)))
        # With nothing left to lease, the shards in progress here may be all that the plan waits for.
        if in_progress and (each is None or len(in_progress) == max_concurrent):
            yield from settle(*in_progress.popleft())
    while in_progress:
        yield from settle(*in_progress.popleft())


def forget_results() -> None:
    """Have Prefect forget the states of earlier tasks, which it keeps to the end of the flow to link their results.

    Nothing here passes a result from task to task, and a run of a million jobs has twenty thousand tasks.
    """
    if flow_run := FlowRunContext.get():
        flow_run.run_results.clear()


def extract_ahead(
    source: ShardQueue,
    extractor_of: Callable[[Plan], MakeExtractor],
    *,
    ahead: int,
    start: StartExtraction,
    threads: int | None = None,
) -> Iterator[ShardInExtraction | None]:
    """Yield shards in order while they are being extracted, with up to `ahead` more in progress.

    If there is nothing to lease at the moment, yield those in progress, and then None.

    Args:
        source: The shards.
        extractor_of: Makes the extractor of a plan.
        ahead: Maximum shards in progress after the one that is yielded.
        start: Starts the extraction of a shard.
        threads: Maximum videos in progress at once: lease no shard before its videos can be begun, so that other
            workers find shards as well. None always leases `ahead`, for extractions that report their videos only at
            the end.
    """
    in_progress: deque[ShardInExtraction] = deque()
    shards = source if threads is None else _lease_as_needed(source, in_progress, threads=threads)
    for leased in shards:
        forget_results()
        if leased:
            stream = ViewStream()
            with shard_logged(leased, "extract"):
                wait = start(leased.shard, extractor_of(leased.plan), stream)
            in_progress.append(
                ShardInExtraction(leased=leased, wait=partial(source.run_or_release, leased, wait), stream=stream)
            )
        if in_progress and (leased is None or len(in_progress) > ahead):
            yield in_progress.popleft()
        elif leased is None:
            yield None
    yield from in_progress


def _lease_as_needed(
    source: ShardQueue, in_progress: Sequence[ShardInExtraction], *, threads: int
) -> Iterator[LeasedShard | None]:
    """Lease a shard whenever a thread is free; yield None if the first shard in progress has ended before that."""
    shards = iter(source)
    while True:
        while sum(each.stream.left for each in in_progress) >= threads:
            if not in_progress[0].stream.left:
                yield None
            else:
                time.sleep(_ROOM_POLL_S)
        try:
            leased = next(shards)
        except StopIteration:
            return
        yield leased


@contextmanager
def local_extraction(threads: int) -> Iterator[StartExtraction]:
    """Yield a function that starts extractions in this process, which prepares videos in the order of their shards.

    Args:
        threads: Maximum videos in progress at once.
    """
    workers = ThreadPoolExecutor(threads)

    def start(shard: Shard, extractor: MakeExtractor, stream: ViewStream) -> Callable[[], ExtractedShard]:
        # Quoted, so that Prefect does not walk through every job looking for futures.
        arguments = (quote(shard), quote(extractor), quote(lambda: nullcontext(workers)), quote(stream))
        future = extract_shard.submit(shard.index, *arguments)  # type: ignore[call-overload]
        future.add_done_callback(lambda _: stream.end(None))  # however it ended
        return cast("Callable[[], ExtractedShard]", future.result)

    try:
        yield start
    finally:
        workers.shutdown(wait=False, cancel_futures=True)


def make_inference_context(
    extractor: FrameExtractor,
    backend: InferenceBackend,
    *,
    run: RunKey,
    spec: RunSpec,
    settings: Settings,
    database: Engine,
) -> InferenceContext:
    """Return what inference needs besides its shards."""
    return InferenceContext(
        spec=spec,
        backend=backend,
        writer=ShardWriter(database, run),
        batch_bytes=settings.model.batch_mib
        * 1024**2
        // (settings.model.max_concurrent_shards * MAX_CONCURRENT_GROUPS),
        extractor=extractor,
        escalate_below=retry_outage(partial(escalation_margin, database, spec)),
        min_choice_mass=settings.model.min_choice_mass,
    )
