"""Shards in flight: extracted ahead of the engine, answered several at a time, and cancelled at the end of a flow."""

from __future__ import annotations

import signal
import time
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from prefect import get_run_logger
from prefect.context import FlowRunContext
from prefect.exceptions import TerminationSignal
from prefect.utilities.annotations import quote

from flows.shard.answer import infer_shard
from flows.shard.context import InferenceContext
from flows.shard.extract import FrameStream, extract_shard
from flows.shard.infer import MAX_CONCURRENT_GROUPS
from flows.shard.queue import LeasedShard, ShardQueue, shard_logged
from flows.shard.retry import cancel_waits_at_exit, retry_outage
from infra.signals import GRACE_S, end_within
from tasks.domain import RunPhase
from tasks.frame_cache.pool import KEPT_BYTES
from tasks.results.evaluation.routes import escalation_margin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prefect.futures import PrefectFuture

    from flows.shard.report import ShardReport
    from infra.settings import Settings
    from reelabel.sources.object_store import ObjectStore
    from tasks.domain import RunSpec, Shard, WallClockProfile
    from tasks.frame_cache.extractor import FrameExtractor
    from tasks.model.backend import InferenceBackend
    from tasks.plans.extracted import ExtractedShard
    from tasks.plans.plan import Plan
    from tasks.results.write import ShardWriter

    # Returns the extractor, in the process that uses it.
    MakeExtractor = Callable[[], FrameExtractor]
    # Starts the extraction of a shard with an extractor and a stream; returns a function that waits for its end.
    StartExtraction = Callable[[Shard, MakeExtractor, FrameStream], Callable[[], ExtractedShard]]

Item = TypeVar("Item")
Started = TypeVar("Started")

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
    stream: FrameStream


def infer_shards(
    extracting: Iterable[ShardInExtraction | None],
    queue: ShardQueue,
    context_of: Callable[[Plan], InferenceContext],
    *,
    profile: WallClockProfile,
    max_concurrent: int,
) -> Iterator[ShardReport]:
    """Answer shards, several at once, so that the engine has work while results are written."""
    spent_ms = Counter[RunPhase]()

    def submit(each: ShardInExtraction) -> tuple[ShardInExtraction, PrefectFuture[ShardReport | None]]:
        leased, context = each.leased, context_of(each.leased.plan)
        arguments = (quote(leased.shard), quote(each.stream), quote(leased.lease), quote(context))
        with shard_logged(leased.plan, leased.lease, "infer"):
            return each, infer_shard.submit(leased.shard.index, *arguments)  # type: ignore[call-overload]

    for started in in_flight(extracting, submit, limit=max_concurrent):
        if started is None:
            continue
        each, future = started
        extracted = each.wait()
        if extracted is None:
            future.wait()
            continue
        spent_ms.update(extracted.spent_ms)
        profile.split(RunPhase.DECODE, spent_ms)
        if report := settle_shard(queue, each.leased, future, stage="infer"):
            yield report


def settle_shard(
    queue: ShardQueue, leased: LeasedShard, future: PrefectFuture[Any], *, stage: str | None
) -> ShardReport | None:
    """Wait for the work on a shard, and return its report; release the shard and return None if the work failed."""
    report: ShardReport | None = queue.run_or_release(leased, future.result)
    if report:
        queue.keeper.forget(leased.lease)
        with shard_logged(leased.plan, leased.lease, stage):
            get_run_logger().info("%s", report)
    return report


def in_flight(
    items: Iterable[Item | None], start: Callable[[Item], Started], *, limit: int
) -> Iterator[Started | None]:
    """Start items as they come, and yield the oldest when `limit` of them are in progress, or no item comes.

    None stands for no item at the moment; it is passed on if nothing is in progress either.
    """
    in_progress: deque[Started] = deque()
    for each in items:
        forget_results()
        if each is not None:
            in_progress.append(start(each))
        # With nothing left to lease, the shards in progress here may be all that the plan waits for.
        if in_progress and (each is None or len(in_progress) == limit):
            yield in_progress.popleft()
        elif each is None:
            yield None
    yield from in_progress


def forget_results() -> None:
    """Drop the states of earlier tasks, which Prefect keeps to the end of the flow to link their results.

    Nothing here passes a result from task to task, and a run of a million jobs has twenty thousand tasks.
    """
    if flow_run := FlowRunContext.get():
        flow_run.run_results.clear()


def extract_ahead(
    queue: ShardQueue,
    extractor_of: Callable[[Plan], MakeExtractor],
    *,
    ahead: int,
    start: StartExtraction,
    threads: int | None = None,
) -> Iterator[ShardInExtraction | None]:
    """Yield shards in order while they are being extracted, with up to `ahead` more in progress.

    If there is nothing to lease at the moment, yield those in progress, and then None.

    Args:
        queue: The shards to extract.
        extractor_of: Makes the extractor of a plan.
        ahead: Maximum shards in progress after the one that is yielded.
        start: Starts the extraction of a shard.
        threads: Maximum videos in progress at once: lease no shard before its videos can be begun, so that other
            workers find shards as well. None always leases `ahead`, for extractions that report their videos only at
            the end.
    """
    streams: deque[FrameStream] = deque()

    def begin(leased: LeasedShard) -> ShardInExtraction:
        stream = FrameStream()
        with shard_logged(leased.plan, leased.lease, "extract"):
            wait = start(leased.shard, extractor_of(leased.plan), stream)
        streams.append(stream)
        return ShardInExtraction(leased=leased, wait=partial(queue.run_or_release, leased, wait), stream=stream)

    shards = queue if threads is None else _lease_as_needed(queue, streams, threads=threads)
    for each in in_flight(shards, begin, limit=ahead + 1):
        if each:
            streams.popleft()
        yield each


def _lease_as_needed(
    queue: ShardQueue, streams: Sequence[FrameStream], *, threads: int
) -> Iterator[LeasedShard | None]:
    """Lease a shard whenever a thread is free; yield None if the first shard in progress has ended before that."""
    shards = iter(queue)
    while True:
        while sum(stream.left for stream in streams) >= threads:
            if not streams[0].left:
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
    """Yield a function that starts extractions in this process, which prepares videos in the order of their shards."""
    workers = ThreadPoolExecutor(threads)

    def start(shard: Shard, extractor: MakeExtractor, stream: FrameStream) -> Callable[[], ExtractedShard]:
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
    writer: ShardWriter,
    *,
    spec: RunSpec,
    settings: Settings,
    profile: WallClockProfile,
    gpus: int = 0,
) -> InferenceContext:
    return InferenceContext(
        spec=spec,
        backend=backend,
        writer=writer,
        batch_bytes=KEPT_BYTES // (settings.model.max_concurrent_shards * MAX_CONCURRENT_GROUPS),
        extractor=extractor,
        escalate_below=retry_outage(escalation_margin, writer.engine, spec),
        min_choice_mass=settings.model.min_choice_mass,
        profile=profile,
        gpus=gpus,
    )


@contextmanager
def cancel_on_exit(*stores: ObjectStore) -> Iterator[None]:
    """When the body ends, cancel its waits, and its requests to stores, which may stall without limit.

    If SIGTERM ended the body, as when a pod or a spot instance is stopped, also end this process some seconds later,
    whatever its tasks wait for. Enter it last, so that the other contexts of a flow have these seconds to clean up.
    """
    with ExitStack() as stack:
        for store in stores:
            stack.callback(store.cancel)  # second: then nothing tries again
        stack.enter_context(cancel_waits_at_exit())
        try:
            yield
        except TerminationSignal:
            end_within(GRACE_S, 128 + signal.SIGTERM)
            raise
