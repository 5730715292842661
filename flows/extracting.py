"""Extraction of a shard: prepare the views of its jobs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from flows.metrics import count_videos
from infra.errors import VideoError
from tasks.domain import Part, Stage
from tasks.plans.extracted import ExtractedShard

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Executor

    from flows.arriving import Arriving
    from infra.objects import ObjectInfo
    from tasks.domain import Shard, View
    from tasks.frames.prepare import PreparedVideo, Preparer


def extract_views(
    shard: Shard, views: Iterable[View], preparer: Preparer, *, workers: Executor, arriving: Arriving
) -> ExtractedShard:
    """Prepare views of a shard's videos, several at once.

    Args:
        shard: The shard.
        views: Views of its jobs.
        preparer: Prepares them.
        workers: Threads to prepare them in.
        arriving: Receives each view as soon as it is ready.
    """
    began_s = time.time()
    known = preparer.look_around(shard.video_uris)

    def prepare(view: View) -> tuple[PreparedVideo | VideoError, float]:
        outcome, ms = _prepare(preparer, view, known.get(view.video_uri))
        arriving.add(view, outcome)
        return outcome, ms

    outcomes = list(workers.map(prepare, views))
    count_videos(outcome for outcome, _ in outcomes)
    by_view = dict(zip(views, (outcome for outcome, _ in outcomes), strict=True))
    return ExtractedShard(
        shard=shard,
        prepared={view: outcome for view, outcome in by_view.items() if not isinstance(outcome, VideoError)},
        faults={view: outcome for view, outcome in by_view.items() if isinstance(outcome, VideoError)},
        spent_ms=_spent_ms(outcomes),
        between_s=(began_s, time.time()),
    )


def _prepare(preparer: Preparer, view: View, info: ObjectInfo | None) -> tuple[PreparedVideo | VideoError, float]:
    """Prepare a view; return the outcome, and milliseconds."""
    started = time.perf_counter()
    try:
        outcome: PreparedVideo | VideoError = preparer.prepare(
            view.video_uri, info, shown=view.shown, segment=view.segment
        )
    except VideoError as error:
        outcome = error
    return outcome, (time.perf_counter() - started) * 1e3


def _spent_ms(outcomes: Iterable[tuple[PreparedVideo | VideoError, float]]) -> dict[Part, float]:
    spent_ms = dict.fromkeys((Part.FETCH, Part.DECODE, Part.CACHE_WRITE, Part.CACHE_READ), 0.0)
    for outcome, ms in outcomes:
        if isinstance(outcome, VideoError):  # a video that hangs its decoder reports no times
            spent_ms[Part.FETCH if outcome.stage == Stage.FETCH else Part.DECODE] += ms
            continue
        spent_ms[Part.CACHE_READ if outcome.was_cached else Part.FETCH] += outcome.lookup_ms
        spent_ms[Part.FETCH] += outcome.fetch_ms
        spent_ms[Part.DECODE] += outcome.decode_ms
        spent_ms[Part.CACHE_WRITE] += outcome.cache_write_ms
    return spent_ms
