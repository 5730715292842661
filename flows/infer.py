"""The flow `infer`: answer extracted shards, on machines with an engine."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from functools import lru_cache, partial, reduce
from typing import TYPE_CHECKING

from prefect import flow, get_run_logger
from prefect.task_runners import ThreadPoolTaskRunner

from flows.run.flow_run import name_of_worker
from flows.run.pipeline import ShardInExtraction, cancel_on_exit, infer_shards, make_inference_context
from flows.run.run_flow import MAX_TASKS, IdleTimeout, Model, PlanId
from flows.run.spec import engine_settings
from flows.shard.extract import FrameStream
from flows.shard.queue import CACHED_PLANS, ServedPlans, ShardQueue
from flows.shard.retry import retry_outage
from infra.errors import PlanLostError
from infra.logs import logged_by_all
from infra.settings import load_settings
from infra.telemetry import start_telemetry
from reelabel.errors import ConfigurationError
from reelabel.frames.cache_key import decoder_versions
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
from tasks.domain import MediaCounts, RunPhase, WallClockProfile
from tasks.frame_cache.pool import decode_pool, open_extractor, video_store
from tasks.manifest.plan_file import read_media
from tasks.model.backend import backend_of, require_media
from tasks.plans.extracted import ExtractedShard, read_extracted
from tasks.plans.lease import Work
from tasks.results.runs import add_versions
from tasks.results.write import RunKey, ShardWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flows.shard.context import InferenceContext
    from flows.shard.queue import LeasedShard
    from infra.settings import Settings
    from tasks.domain import ModelIdentity, RunSpec
    from tasks.model.backend import Backend
    from tasks.model.identity import ModelInfo
    from tasks.plans.plan import Plan

_POLL_S = 1.0


@flow(
    name="infer",
    description="Answer shards that other machines have extracted.",
    flow_run_name=lambda: name_of_worker("infer"),
    task_runner=ThreadPoolTaskRunner(max_workers=MAX_TASKS),  # type: ignore[arg-type]
)
def infer(plan: PlanId = None, model: Model = None, idle_timeout_s: IdleTimeout = None) -> str:
    """Load the model once, and answer extracted shards until none is left, or the idle timeout passes.

    Any number of these may run, each with its own engine.

    Args:
        plan: Id of the plan to work on; if empty, every open plan for this model.
        model: Model folder or hub name; if empty, the setting.
        idle_timeout_s: Exit after this many seconds without a shard; if empty, 300.
    """
    with logged_by_all(stage="infer", plan=plan):
        count = _infer_plans(load_settings(), plan=plan, model=model, idle_timeout_s=idle_timeout_s)
    return f"Answered {pluralize(count, 'shard')}."


def _infer_plans(settings: Settings, *, plan: str | None, model: str | None, idle_timeout_s: float | None) -> int:
    registered = backend_of(settings)
    model_info = registered.model_info(model, settings)
    registered.check(model_info, settings)
    identity = model_info.identity.model_copy(update={"dtype": settings.model.dtype})
    with ServedPlans.open(settings, plan=plan, idle_timeout_s=idle_timeout_s) as served:
        plans = _wait_for_plans(served, identity)
        return _answer(plans, served, registered, model_info, settings) if plans else 0


def _answer(
    plans: list[Plan], served: ServedPlans, registered: Backend, model_info: ModelInfo, settings: Settings
) -> int:
    objects = ObjectStore(settings.store, settings.web)
    videos = video_store(settings, files=objects)
    first = served.spec_of(plans[0])
    plans = [plan for plan in plans if _are_answered_alike(first, served.spec_of(plan))]

    @lru_cache(CACHED_PLANS)
    def media_of(plan_uri: str) -> MediaCounts:
        return retry_outage(read_media, objects, plan_uri, seal=settings.store.seal)

    media = reduce(MediaCounts.larger, (media_of(plan.plan_uri) for plan in plans))

    require_media(registered, first, media, settings)
    start_telemetry(settings.metrics)
    profile = WallClockProfile()

    def answerable() -> list[Plan]:
        plans = [
            plan
            for plan in _plans_of(served, first.model)
            if _are_answered_alike(first, served.spec_of(plan)) and media.larger(media_of(plan.plan_uri)) == media
        ]
        if not plans:
            profile.lap()  # time without a plan is charged to none
        return plans

    with ExitStack() as stack:
        with profile.doing(RunPhase.LOAD):
            pool = stack.enter_context(decode_pool(settings, processes=1))
            backend = stack.enter_context(registered.open(model_info, engine_settings(settings, first), media=media))
            queue = stack.enter_context(ShardQueue.of_worker(served, Work.INFER, settings, objects, plans=answerable))
            stack.enter_context(cancel_on_exit(videos, objects))
            info = backend.wait_ready()

        @lru_cache(CACHED_PLANS)
        def context_of(plan: Plan) -> InferenceContext:
            spec = served.spec_of(plan)
            extractor = open_extractor(settings, pool, spec.sampling, keep_bytes=0, videos=videos, files=objects)
            retry_outage(add_versions, served.database, plan.run_id, decoder_versions() | info.versions)
            run = RunKey(run_id=plan.run_id, dataset=plan.dataset, spec_id=plan.spec_id, host=socket.gethostname())
            return make_inference_context(
                extractor,
                backend,
                ShardWriter(served.database, run),
                spec=spec,
                settings=settings,
                profile=profile,
                gpus=info.gpus,
            )

        ahead, at_once = _read_ahead(queue, served.spec_of, profile), settings.model.max_concurrent_shards
        answered = infer_shards(ahead, queue, context_of, profile=profile, max_concurrent=at_once * backend.engines)
        return sum(1 for _ in answered)


def _wait_for_plans(served: ServedPlans, identity: ModelIdentity) -> list[Plan]:
    until_s = time.monotonic() + served.idle_timeout_s
    while not (plans := retry_outage(_plans_of, served, identity)):
        if retry_outage(served.has_ended, 0.0) or time.monotonic() >= until_s:
            break
        time.sleep(_POLL_S)
    return plans


def _plans_of(served: ServedPlans, identity: ModelIdentity) -> list[Plan]:
    plans = served.plans()
    fitting = [plan for plan in plans if served.spec_of(plan).model == identity]
    if plans and served.plan_id and not fitting:
        needed = served.spec_of(plans[0]).model
        raise ConfigurationError(
            f"Plan {served.plan_id} needs model {needed.name} ({needed.dtype}), but this worker has {identity.name} "
            f"({identity.dtype}), or another version of it; set model.name, model.revision and model.dtype to match."
        )
    return fitting


def _are_answered_alike(one: RunSpec, other: RunSpec) -> bool:
    loaded = ("model", "video_pruning_rate", "chat_template_args", "engine_args")
    return all(getattr(one, name) == getattr(other, name) for name in loaded)


def _read_ahead(
    queue: ShardQueue, spec_of: Callable[[Plan], RunSpec], profile: WallClockProfile
) -> Iterator[ShardInExtraction | None]:
    shards = iter(queue)
    while True:
        with profile.doing(RunPhase.DECODE):  # the next shard is being extracted by other flows
            try:
                leased = next(shards)
            except StopIteration:
                return
        extracted = _read_handed_over(queue, leased, spec_of(leased.plan)) if leased else None
        if leased and extracted:
            yield ShardInExtraction(
                leased=leased, wait=partial(lambda each: each, extracted), stream=FrameStream.whole(extracted)
            )
        elif leased is None:
            yield None


def _read_handed_over(queue: ShardQueue, leased: LeasedShard, spec: RunSpec) -> ExtractedShard | None:
    objects, uri = queue.objects, leased.plan.plan_uri
    read = partial(read_extracted, objects, uri, leased.shard, sampling=spec.sampling, seal=queue.seal)
    try:
        return queue.run_or_release(leased, partial(queue.retry_with_files, leased.plan, read))
    except PlanLostError as error:
        get_run_logger().warning("%s", error.message)
        retry_outage(queue.keeper.release, leased.lease, message=error.message, state="planned")
        return None
