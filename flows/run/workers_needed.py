"""Which workers a plan needs, in words: those that are alive, and how to start those that are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reelabel.text import pluralize
from tasks.plans.lease import Work
from tasks.plans.worker import start_command

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tasks.plans.worker import Worker

STAGES = (Work.EXTRACT, Work.INFER)
_PLACES_SHOWN = 4


def describe_workers(workers: Collection[Worker]) -> str:
    """Describe workers by stage, with their hosts and process ids: `1 extract worker (cpu-1: 12), no infer worker`."""
    return ", ".join(_describe(stage, [each for each in workers if each.stage == stage]) for stage in STAGES)


def _describe(stage: Work, workers: Sequence[Worker]) -> str:
    noun = f"{stage} worker"
    if not workers:
        return f"no {noun}"
    places = [f"{each.host}: {each.pid}" for each in workers]
    more = [f"{len(places) - _PLACES_SHOWN:,} more"] if len(places) > _PLACES_SHOWN else []
    return f"{pluralize(len(places), noun)} ({', '.join(places[:_PLACES_SHOWN] + more)})"


def missing_stages(workers: Collection[Worker], *, planned: int, extracted: int) -> list[Work]:
    """List the stages that have work left, and no worker among those that serve the plan, in their order.

    `planned` shards are not extracted, and `extracted` ones not done.
    """
    there = {each.stage for each in workers}
    left = {Work.EXTRACT: planned, Work.INFER: planned + extracted}
    return [stage for stage, shards in left.items() if shards and stage not in there]


def absence(stage: Work, *, model: str | None = None) -> str:
    """Say that a stage has no worker, and how to start one, without a full stop; `model` is as in `start_command`."""
    return f"No {stage} worker is alive: start one by `{start_command(stage, model=model)}`"
