"""The flow that extracts, on machines without an engine."""

from __future__ import annotations

import os
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from prefect import flow, get_run_logger
from prefect.task_runners import ThreadPoolTaskRunner

from flows.on_ray import connected, preparer_there
from flows.parameters import IdleSeconds, PlanId
from flows.patience import patiently, persistently, waits_ended
from flows.serving import PLANS_KEPT, Serving
from flows.taking import make_keeper
from flows.work import MOST_TASKS, extract_ahead, extraction_here, make_preparer
from infra.objects import ObjectStore
from infra.settings import load_settings
from infra.telemetry import start_metrics
from infra.wording import counted
from tasks.frames.decoding import decode_pool
from tasks.plans.extracted import write_extracted
from tasks.plans.lease import Work, finish_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flows.taking import HeldShard, ShardSource
    from flows.work import Extracting
    from infra.settings import Settings
    from tasks.domain import RunSpec
    from tasks.frames.prepare import Preparer
    from tasks.plans.extracted import ExtractedShard
    from tasks.plans.plan import Plan


@flow(
    name="extract",
    description="Extract frames for runs whose model is on other machines.",
    task_runner=ThreadPoolTaskRunner(max_workers=MOST_TASKS),  # type: ignore[arg-type]
)
def extract(plan: PlanId = None, idle_s: IdleSeconds = None) -> str:
    """Extract planned shards until none is left, or none came for a while; any number of these may run.

    Args:
        plan: Id of the plan to work on; empty serves every open plan.
        idle_s: Seconds without a shard, after which this ends; empty takes the setting (300).
    """
    count = _extract_plans(load_settings(), plan=plan, idle_s=idle_s)
    return f"Extracted {counted(count, 'shard')}."


def _extract_plans(settings: Settings, *, plan: str | None, idle_s: float | None) -> int:
    """Extract planned shards until there are none left, or none came for a while; gives how many."""
    start_metrics(settings.metrics)
    count = 0
    objects = ObjectStore(settings.store, settings.web)
    with (
        Serving.opened(settings, plan=plan, idle_s=idle_s) as serving,
        make_keeper(serving.database, settings) as keeper,
        waits_ended(),
    ):
        most = settings.extract.max_pending_shards
        source = serving.source(Work.EXTRACT, keeper=keeper, objects=objects, most_waiting=most)
        extracting = _on_ray if settings.extract.ray_address else _here
        for each in extracting(settings, source, serving.spec_of):
            if each is None:
                continue
            extracted = each.wait()
            if extracted and source.attempt(each.held, partial(_hand_over, source, each.held, extracted)):
                count += 1
    return count


def _here(settings: Settings, source: ShardSource, spec_of: Callable[[Plan], RunSpec]) -> Iterator[Extracting | None]:
    """Extract in this flow's own decoding processes."""
    processes = settings.extract.processes or os.cpu_count() or 1
    ahead = settings.extract.lookahead_shards
    with decode_pool(settings, processes=processes) as pool, extraction_here(processes * (1 + ahead)) as start:

        @lru_cache(PLANS_KEPT)
        def preparer_of(plan: Plan) -> Preparer:
            return make_preparer(settings, pool, spec_of(plan), keep_bytes=0)

        yield from extract_ahead(source, lambda plan: partial(preparer_of, plan), ahead=ahead, start=start)


def _on_ray(settings: Settings, source: ShardSource, spec_of: Callable[[Plan], RunSpec]) -> Iterator[Extracting | None]:
    """Have a Ray cluster extract: as many shards at once as it has room for, and some that wait for room."""
    processes = settings.extract.processes or 1
    with connected(settings.extract.ray_address or "", processes=processes) as cluster:

        def preparer_of(plan: Plan) -> Callable[[], Preparer]:
            return partial(preparer_there, spec_of(plan).model_dump_json(), processes)

        ahead = cluster.shards_at_once + settings.extract.lookahead_shards
        yield from extract_ahead(source, preparer_of, ahead=ahead, start=cluster.start)


def _hand_over(source: ShardSource, held: HeldShard, extracted: ExtractedShard) -> bool:
    write = partial(write_extracted, source.objects, held.plan.plan_uri, extracted)
    persistently(write, partial(source.objects.reach, [held.plan.plan_uri]))
    patiently(partial(finish_alone, source.database, held.lease, state="extracted"))
    source.keeper.forget(held.lease)
    get_run_logger().info(
        "Shard %s: %s videos extracted, %s failed.", held.shard.index, len(extracted.prepared), len(extracted.faults)
    )
    return True
