"""The flow `extract`: extract frames on machines without an engine."""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from prefect import flow, get_run_logger
from prefect.task_runners import ThreadPoolTaskRunner

from flows.run.flow_run import name_of_worker
from flows.run.pipeline import cancel_on_exit, extract_ahead, local_extraction
from flows.run.ray_cluster import ray_cluster, remote_extractor
from flows.run.run_flow import MAX_TASKS, IdleTimeout, PlanId
from flows.shard.queue import CACHED_PLANS, ServedPlans, make_lease_keeper
from flows.shard.retry import retry_outage
from infra.logs import logged_by_all
from infra.settings import load_settings
from infra.telemetry import start_telemetry
from reelabel.cores import usable_cores
from reelabel.errors import JobError
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
from tasks.frame_cache.pool import decode_pool, open_extractor, video_store
from tasks.plans.extracted import write_extracted
from tasks.plans.lease import Work, finish_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flows.run.pipeline import ShardInExtraction
    from flows.shard.queue import LeasedShard, ShardQueue
    from infra.settings import Settings
    from reelabel.pool.decode_pool import DecodePool
    from tasks.domain import RunSpec
    from tasks.frame_cache.extractor import FrameExtractor
    from tasks.plans.extracted import ExtractedShard
    from tasks.plans.plan import Plan

    # Extracts the shards of a queue, by the spec of each plan.
    _Extracting = Callable[[ShardQueue, Callable[[Plan], RunSpec]], Iterator[ShardInExtraction | None]]


# Extracted shards that may wait for inference; extraction pauses while they are so many.
_MAX_PENDING = 64


@flow(
    name="extract",
    description="Extract frames for runs with the remote executor.",
    flow_run_name=lambda: name_of_worker("extract"),
    task_runner=ThreadPoolTaskRunner(max_workers=MAX_TASKS),  # type: ignore[arg-type]
)
def extract(plan: PlanId = None, idle_timeout_s: IdleTimeout = None) -> str:
    """Extract planned shards until none is left, or the idle timeout passes; any number of these may run.

    Args:
        plan: Id of the plan to work on; if empty, every open plan.
        idle_timeout_s: Exit after this many seconds without a shard; if empty, 300.
    """
    with logged_by_all(stage="extract", plan=plan):
        count = _extract_plans(load_settings(), plan=plan, idle_timeout_s=idle_timeout_s)
    return f"Extracted {pluralize(count, 'shard')}."


def _extract_plans(settings: Settings, *, plan: str | None, idle_timeout_s: float | None) -> int:
    start_telemetry(settings.metrics)
    count = 0
    objects = ObjectStore(settings.store, settings.web)
    videos = video_store(settings, files=objects)
    with (
        ServedPlans.open(settings, plan=plan, idle_timeout_s=idle_timeout_s) as served,
        make_lease_keeper(served.database, settings) as keeper,
        _extraction(settings, videos, objects) as extracting,
        cancel_on_exit(videos, objects),
    ):
        source = served.queue(
            Work.EXTRACT, keeper=keeper, objects=objects, seal=settings.store.seal, max_pending=_MAX_PENDING
        )
        for each in extracting(source, served.spec_of):
            if each is None:
                continue
            extracted = each.wait()
            if extracted and source.run_or_release(each.leased, partial(_hand_over, source, each.leased, extracted)):
                count += 1
    return count


@contextmanager
def _extraction(settings: Settings, videos: ObjectStore, files: ObjectStore) -> Iterator[_Extracting]:
    if settings.extract.ray_address:
        yield partial(_on_ray, settings)
        return
    processes = settings.extract.processes or usable_cores()
    with decode_pool(settings, processes=processes) as pool:
        yield partial(_here, settings, pool, processes, videos, files)


def _here(
    settings: Settings,
    pool: DecodePool,
    processes: int,
    videos: ObjectStore,
    files: ObjectStore,
    source: ShardQueue,
    spec_of: Callable[[Plan], RunSpec],
) -> Iterator[ShardInExtraction | None]:
    ahead = settings.extract.lookahead_shards
    threads = processes * (1 + ahead)
    with local_extraction(threads) as start:

        @lru_cache(CACHED_PLANS)
        def extractor_of(plan: Plan) -> FrameExtractor:
            return open_extractor(settings, pool, spec_of(plan).sampling, keep_bytes=0, videos=videos, files=files)

        yield from extract_ahead(
            source, lambda plan: partial(extractor_of, plan), ahead=ahead, start=start, threads=threads
        )


def _on_ray(
    settings: Settings, source: ShardQueue, spec_of: Callable[[Plan], RunSpec]
) -> Iterator[ShardInExtraction | None]:
    """Extract on a Ray cluster: as many shards at once as it has CPUs for, and a few queued ones."""
    processes = settings.extract.processes or 1
    with ray_cluster(settings.extract.ray_address or "", processes=processes) as cluster:

        def extractor_of(plan: Plan) -> Callable[[], FrameExtractor]:
            return partial(remote_extractor, spec_of(plan).model_dump_json(), processes)

        ahead = cluster.max_concurrent_shards + settings.extract.lookahead_shards
        yield from extract_ahead(source, extractor_of, ahead=ahead, start=cluster.start)


def _hand_over(source: ShardQueue, leased: LeasedShard, extracted: ExtractedShard) -> bool:
    write = partial(write_extracted, source.objects, leased.plan.plan_uri, extracted, seal=source.seal)
    source.retry_with_files(leased.plan, write)
    retry_outage(finish_alone, source.database, leased.lease, state="extracted")
    source.keeper.forget(leased.lease)
    failed = sum(isinstance(outcome, JobError) for outcome in extracted.outcomes.values())
    extracted_count = len(extracted.outcomes) - failed
    get_run_logger().info("Shard %s: %s videos extracted, %s failed.", leased.shard.index, extracted_count, failed)
    return True
