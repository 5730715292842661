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
from flows.shard.queue import CACHED_PLANS, ServedPlans, ShardQueue
from infra.logs import logged_by_all
from infra.settings import load_settings
from infra.telemetry import start_telemetry
from reelabel.cores import usable_cores
from reelabel.errors import JobError
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
from tasks.frame_cache.pool import decode_pool, open_extractor, video_store
from tasks.plans.extracted import write_extracted
from tasks.plans.lease import Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flows.run.pipeline import ShardInExtraction
    from flows.shard.queue import LeasedShard
    from infra.settings import Settings
    from tasks.domain import RunSpec
    from tasks.frame_cache.extractor import FrameExtractor
    from tasks.plans.extracted import ExtractedShard
    from tasks.plans.plan import Plan


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
        ShardQueue.of_worker(served, Work.EXTRACT, settings, objects, max_pending=_MAX_PENDING) as queue,
        _extraction(settings, queue, served.spec_of, videos=videos, files=objects) as extracting,
        cancel_on_exit(videos, objects),
    ):
        for each in extracting:
            if each is None:
                continue
            extracted = each.wait()
            if extracted and queue.run_or_release(each.leased, partial(_hand_over, queue, each.leased, extracted)):
                count += 1
    return count


@contextmanager
def _extraction(
    settings: Settings,
    queue: ShardQueue,
    spec_of: Callable[[Plan], RunSpec],
    *,
    videos: ObjectStore,
    files: ObjectStore,
) -> Iterator[Iterator[ShardInExtraction | None]]:
    """Yield the shards of a queue in extraction: on a Ray cluster, if one is set, or in processes of this machine."""
    ahead = settings.extract.lookahead_shards
    if settings.extract.ray_address:
        processes = settings.extract.processes or 1

        def remote_extractor_of(plan: Plan) -> Callable[[], FrameExtractor]:
            return partial(remote_extractor, spec_of(plan).model_dump_json(), processes)

        with ray_cluster(settings.extract.ray_address, processes=processes) as (start, shards):
            # As many shards at once as the cluster has CPUs for, and a few queued ones.
            yield extract_ahead(queue, remote_extractor_of, ahead=shards + ahead, start=start)
        return
    processes = settings.extract.processes or usable_cores()
    threads = processes * (1 + ahead)
    with decode_pool(settings, processes=processes) as pool, local_extraction(threads) as start:

        @lru_cache(CACHED_PLANS)
        def extractor_of(plan: Plan) -> FrameExtractor:
            return open_extractor(settings, pool, spec_of(plan).sampling, keep_bytes=0, videos=videos, files=files)

        yield extract_ahead(queue, lambda plan: partial(extractor_of, plan), ahead=ahead, start=start, threads=threads)


def _hand_over(queue: ShardQueue, leased: LeasedShard, extracted: ExtractedShard) -> bool:
    write = partial(write_extracted, queue.objects, leased.plan.plan_uri, extracted, seal=queue.seal)
    queue.retry_with_files(leased.plan, write)
    queue.finish(leased.lease, state="extracted")
    failed = sum(isinstance(outcome, JobError) for outcome in extracted.outcomes.values())
    extracted_count = len(extracted.outcomes) - failed
    get_run_logger().info("Shard %s: %s videos extracted, %s failed.", leased.shard.index, extracted_count, failed)
    return True
