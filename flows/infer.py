"""The flow that answers, on machines with an engine."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache, partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from prefect import flow, get_run_logger
from prefect.task_runners import ThreadPoolTaskRunner

from flows.arriving import Arriving
from flows.asker import check_asker, make_asker, read_card
from flows.parameters import IdleSeconds, Model, PlanId
from flows.patience import patiently, persistently, waits_ended
from flows.serving import PLANS_KEPT, Serving
from flows.taking import make_keeper
from flows.work import MOST_TASKS, Extracting, answer_shards, make_answering, make_preparer
from infra.errors import ConfigurationError, PlanLostError
from infra.objects import ObjectStore
from infra.settings import load_settings
from infra.telemetry import start_metrics
from infra.wording import counted
from tasks.domain import Part, TimeLedger
from tasks.frames.decoding import decode_pool
from tasks.frames.key import decoder_versions
from tasks.plans.extracted import ExtractedShard, read_extracted
from tasks.plans.lease import Work, finish_alone
from tasks.results.write import RunKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flows.asking import Answering
    from flows.taking import HeldShard, ShardSource
    from infra.settings import Settings
    from tasks.domain import ModelIdentity, Sampling
    from tasks.model.questions import EngineInfo
    from tasks.plans.plan import Plan

_POLL_S = 1.0


@flow(
    name="infer",
    description="Answer what other machines have extracted.",
    task_runner=ThreadPoolTaskRunner(max_workers=MOST_TASKS),  # type: ignore[arg-type]
)
def infer(plan: PlanId = None, model: Model = None, idle_s: IdleSeconds = None) -> str:
    """Load the model once, and answer extracted shards until none is left, or none came for a while.

    Any number of these may run, each with an engine of its own.

    Args:
        plan: Id of the plan to work on; empty serves every open plan that asks the model.
        model: Model folder or hub name; empty takes the setting, or the tiny model that ships.
        idle_s: Seconds without a shard, after which this ends; empty takes the setting (300).
    """
    count = _infer_plans(load_settings(), plan=plan, model=model, idle_s=idle_s)
    return f"Answered {counted(count, 'shard')}."


def _infer_plans(settings: Settings, *, plan: str | None, model: str | None, idle_s: float | None) -> int:
    """Load the model once and answer extracted shards of plans that ask it; gives how many.

    Raises:
        ConfigurationError: The plan that is named asks another model.
    """
    card = read_card(model, settings)
    check_asker(card, settings)
    identity = card.identity.model_copy(update={"dtype": settings.model.dtype})
    objects = ObjectStore(settings.store, settings.web)
    with Serving.opened(settings, plan=plan, idle_s=idle_s) as serving:
        plans = _wait_for_plans(serving, identity)
        if not plans:
            return 0
        largest = max((serving.spec_of(plan).sampling for plan in plans), key=_shown_px)
        start_metrics(settings.metrics)
        ledger = TimeLedger()
        with ExitStack() as stack:
            with ledger.doing(Part.LOAD):
                pool = stack.enter_context(decode_pool(settings, processes=1))
                engine = stack.enter_context(make_asker(card, settings, sampling=largest))
                keeper = stack.enter_context(make_keeper(serving.database, settings))
                stack.enter_context(waits_ended())
                info = engine.wait_ready()
            source = serving.source(Work.INFER, keeper=keeper, objects=objects)
            source = replace(source, plans=partial(_charging_plans, serving, identity, ledger))

            @lru_cache(PLANS_KEPT)
            def answering_of(plan: Plan) -> Answering:
                spec = serving.spec_of(plan)
                preparer = make_preparer(settings, pool, spec, keep_bytes=0)
                run = _run_key(plan, model=identity.name, info=info)
                made = make_answering(
                    preparer, engine, run=run, spec=spec, settings=settings, database=serving.database
                )
                return replace(made, ledger=ledger, gpus=info.gpus)

            at_once = settings.model.max_concurrent_shards * engine.engines
            count = 0
            for report in answer_shards(
                _read_ahead(source, ledger), source, answering_of, ledger=ledger, at_once=at_once
            ):
                get_run_logger().info("%s", report, extra={"shard": report.index})
                count += 1
            return count


def _wait_for_plans(serving: Serving, identity: ModelIdentity) -> list[Plan]:
    """Wait for plans that ask the model, so that no engine is loaded for nothing; none where none came."""
    until_s = time.monotonic() + serving.idle_s
    while not (plans := patiently(partial(_plans_of, serving, identity))):
        if patiently(partial(serving.has_ended, 0.0)) or time.monotonic() >= until_s:
            break
        time.sleep(_POLL_S)
    return plans


def _shown_px(sampling: Sampling) -> int:
    return sampling.num_frames * sampling.max_pixels


def _plans_of(serving: Serving, identity: ModelIdentity) -> list[Plan]:
    plans = serving.plans()
    fitting = [plan for plan in plans if serving.spec_of(plan).model == identity]
    if plans and serving.plan_id and not fitting:
        wanted = serving.spec_of(plans[0]).model
        raise ConfigurationError(
            f"Plan {serving.plan_id} asks the model {wanted.name} as {wanted.dtype}, but here is {identity.name} "
            f"as {identity.dtype}, or another version of it; set model.name, model.revision and model.dtype as there."
        )
    return fitting


def _charging_plans(serving: Serving, identity: ModelIdentity, ledger: TimeLedger) -> list[Plan]:
    """List the plans; time that passes while there are none is charged to none of them."""
    plans = _plans_of(serving, identity)
    if not plans:
        ledger.lap()
    return plans


def _read_ahead(source: ShardSource, ledger: TimeLedger) -> Iterator[Extracting | None]:
    shards = iter(source)
    while True:
        with ledger.doing(Part.DECODE):  # what comes next is being extracted elsewhere
            try:
                held = next(shards)
            except StopIteration:
                return
        extracted = _read_handed_over(source, held) if held else None
        if held and extracted:
            yield Extracting(held=held, wait=partial(_itself, extracted), arriving=Arriving.whole(extracted))
        elif held is None:
            yield None


def _itself(extracted: ExtractedShard) -> ExtractedShard:
    return extracted


def _read_handed_over(source: ShardSource, held: HeldShard) -> ExtractedShard | None:
    read = partial(read_extracted, source.objects, held.plan.plan_uri, held.shard)
    try:
        return source.attempt(held, partial(persistently, read, partial(source.objects.reach, [held.plan.plan_uri])))
    except PlanLostError as error:
        get_run_logger().warning("%s", error.message)
        back = partial(finish_alone, source.database, held.lease, state="planned")
        source.attempt(held, partial(patiently, back))
        source.keeper.forget(held.lease)
        return None


def _run_key(plan: Plan, *, model: str, info: EngineInfo) -> RunKey:
    return RunKey(
        run_id=plan.run_id,
        dataset=plan.dataset,
        spec_id=plan.spec_id,
        model=model,
        versions=decoder_versions() | {"reelabel": version("reelabel")} | info.versions,
        host=socket.gethostname(),
    )
