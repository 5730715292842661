"""Extraction of a shard: cut its jobs into chunks, and prepare the frames of their views, which inference streams."""

from __future__ import annotations

import logging
import math
import threading
import time
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Self

from prefect import task
from prefect.cache_policies import NO_CACHE

from flows.shard.report import record_videos, shard_in_progress
from flows.shard.retry import retry_faults
from infra.logs import in_context
from reelabel.errors import JobError, StoreUnavailableError
from reelabel.sources.object_info import redact_uri
from reelabel.unexpected import failing_alone
from tasks.domain import RunPhase, Stage, group_by_views
from tasks.domain.chunks import CutVideo, cut_job, cut_shard
from tasks.frame_cache.look import look_at
from tasks.plans.extracted import ExtractedShard
from tasks.relevance import RelevantExtractor
from tasks.survey.cost import stated_length_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

    from reelabel.sources.object_store import ObjectInfo
    from tasks.domain import Job, Shard, View
    from tasks.domain.chunks import CutShard
    from tasks.frame_cache.extractor import ExtractedVideo, FrameExtractor

_LOG = logging.getLogger("reelabel")
_PARTS = (RunPhase.FETCH, RunPhase.DECODE, RunPhase.EMBED, RunPhase.CACHE_WRITE, RunPhase.CACHE_READ)


class FrameStream:
    """Outcomes of views in the order of their completion, so that inference need not wait for the whole shard.

    Thread-safe, and can be read again from the first view.
    """

    def __init__(self) -> None:
        self._outcomes: dict[View, ExtractedVideo | JobError] = {}
        self._extracted: ExtractedShard | None = None
        self._expected: int | None = None
        self._cut: CutShard | None = None
        self._is_over = threading.Event()
        self._changed = threading.Condition()

    @classmethod
    def whole(cls, extracted: ExtractedShard) -> Self:
        """Return the stream of a shard whose extraction has ended."""
        stream = cls()
        stream._outcomes = dict(extracted.outcomes)
        stream._cut = cut_shard(extracted.shard, extracted.cut_videos)
        stream.end(extracted)
        return stream

    def expect(self, views: int) -> None:
        """Set the number of views to come in total."""
        self._expected = views

    def begin(self, cut: Callable[[], CutShard]) -> CutShard:
        """Cut the shard's jobs into chunks, unless an earlier attempt at its extraction has done so."""
        if self._cut is None:
            found = cut()
            with self._changed:
                self._cut = found
                self._changed.notify_all()
        return self._cut

    def wait_for_jobs(self) -> CutShard | None:
        """Wait until the shard's jobs have been cut into chunks; return None if its extraction failed before that."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over.is_set() or self._cut is not None)
        return self._cut

    @property
    def left(self) -> float:
        """Number of views to come; infinite before it is known, and 0 after the end."""
        if self._is_over.is_set():
            return 0
        return math.inf if self._expected is None else self._expected - len(self._outcomes)

    def add(self, view: View, outcome: ExtractedVideo | JobError) -> None:
        """Add the outcome of a view; if it has one, as after a retried extraction, the first is kept."""
        with self._changed:
            self._outcomes.setdefault(view, outcome)
            self._changed.notify_all()

    def end(self, extracted: ExtractedShard | None) -> None:
        """End the stream, with None if the extraction failed; an earlier shard is kept."""
        with self._changed:
            self._extracted = self._extracted or extracted
            self._is_over.set()
            self._changed.notify_all()

    def after(
        self, count: int, *, min_count: int = 1, max_wait_s: float = 0.0, needs_one: bool = True
    ) -> dict[View, ExtractedVideo | JobError]:
        """Wait for views beyond the first `count`, and return them; empty at the end of the stream.

        Args:
            count: Number of views already read.
            min_count: If fewer than this many are new, wait for the end of the stream, for up to `max_wait_s`.
            max_wait_s: Longest such wait, in seconds.
            needs_one: Wait for the first of them, however long it takes.
        """
        with self._changed:
            if needs_one:
                self._changed.wait_for(lambda: self._is_over.is_set() or len(self._outcomes) > count)
            is_short = len(self._outcomes) < count + min_count
        if is_short:
            self._is_over.wait(max_wait_s)
        with self._changed:
            return dict(islice(self._outcomes.items(), count, None))

    @property
    def extracted(self) -> ExtractedShard | None:
        """The extracted shard, after the end; None if its extraction failed."""
        return self._extracted


@task(task_run_name="extract-shard-{index}", cache_policy=NO_CACHE, persist_result=False)
def extract_shard(
    index: int,  # noqa: ARG001
    shard: Shard,
    make_extractor: Callable[[], FrameExtractor],
    open_workers: Callable[[], AbstractContextManager[Executor]],
    stream: FrameStream | None = None,
) -> ExtractedShard:
    """Cache the frames of a shard's videos, several at once.

    A bad video fails its own jobs, not the shard. Safe to run again: cached videos are skipped. The stream receives
    each view as soon as it is ready.
    """
    with shard_in_progress("extract"), open_workers() as workers:
        extractor, stream = make_extractor(), stream or FrameStream()
        extract = partial(extract_jobs, shard, extractor, workers=workers, stream=stream)
        extracted, _ = retry_faults(extract, {StoreUnavailableError: partial(extractor.check_stores, shard.video_uris)})
        return extracted


def extract_jobs(
    shard: Shard, extractor: FrameExtractor, *, workers: Executor, stream: FrameStream
) -> tuple[ExtractedShard, dict[tuple[View, ...], list[Job]]]:
    """Cut a shard's jobs, and prepare what they show; also return the jobs or chunks by their views."""
    cut = stream.begin(partial(cut_into_chunks, shard, extractor, workers=workers))
    shown = group_by_views(cut.shard.jobs, extractor.sampling)
    views = tuple(dict.fromkeys(chain.from_iterable(shown)))
    stream.expect(len(views))
    extracted = extract_views(shard, views, extractor, workers=workers, stream=stream, cut=cut)
    stream.end(extracted)
    return extracted, shown


def cut_into_chunks(shard: Shard, extractor: FrameExtractor, *, workers: Executor) -> CutShard:
    """Cut the jobs of a shard that have a `chunk_s`, by the lengths that their videos state.

    The indexes that are read stay in the extractor's cache.
    """
    jobs: dict[str, list[Job]] = {}
    for job in shard.jobs:
        if job.chunk_s is not None:
            jobs.setdefault(job.video_uri, []).append(job)
    if not jobs:
        return cut_shard(shard, {})
    known = extractor.objects.stat_many(shard.video_uris)

    def length_of(uri: str) -> tuple[ObjectInfo | None, CutVideo | JobError]:
        info = known.get(uri)
        try:
            with failing_alone(f"The look at {redact_uri(uri)}"):
                seen = look_at(extractor, uri, info)
                info = seen.info
                length_s = stated_length_s(seen, extractor.limits)
                for job in jobs[uri]:
                    cut_job(job, length_s)  # raises if there are too many chunks
        except JobError as error:
            error.fingerprint = error.fingerprint or (info.fingerprint if info else None)
            return info, error
        return info, CutVideo(length_s, info.fingerprint if info else None)

    seen = dict(zip(jobs, workers.map(in_context(length_of), jobs), strict=True))
    videos = {uri: found for uri, (_, found) in seen.items() if isinstance(found, CutVideo)}
    return replace(
        cut_shard(shard, videos),
        faults={uri: found for uri, (_, found) in seen.items() if isinstance(found, JobError)},
        known={**known, **{uri: info for uri, (info, _) in seen.items() if info}},
    )


def extract_views(
    shard: Shard,
    views: Iterable[View],
    extractor: FrameExtractor,
    *,
    workers: Executor,
    stream: FrameStream,
    cut: CutShard | None = None,
) -> ExtractedShard:
    """Prepare views of a shard's videos, several at once; the stream receives each as soon as it is ready.

    `cut` is the shard with its jobs cut; None cuts none.
    """
    began_s = time.time()
    faults, cut_videos = (cut.faults, cut.videos) if cut else ({}, {})
    known = cut.known if cut and cut.known is not None else extractor.objects.stat_many(shard.video_uris)

    def prepare(view: View) -> tuple[ExtractedVideo | JobError, float]:
        fault = faults.get(view.video_uri)
        outcome, ms = (fault, 0.0) if fault else _prepare(extractor, view, known.get(view.video_uri))
        stream.add(view, outcome)
        return outcome, ms

    # Passes of one video wait for each other, so that no frames are decoded twice: those of other videos come first.
    views = sorted(views, key=lambda view: view.shown in {"keyframes", "dense"})
    outcomes = list(workers.map(in_context(prepare), views))
    record_videos(outcome for outcome, _ in outcomes)
    log_rewritten(outcome for outcome, _ in outcomes)
    return ExtractedShard(
        shard=shard,
        outcomes=dict(zip(views, (outcome for outcome, _ in outcomes), strict=True)),
        spent_ms=_spent_ms(outcomes),
        between_s=(began_s, time.time()),
        cut_videos=cut_videos,
    )


def prepare_view(extractor: FrameExtractor, view: View, info: ObjectInfo | None = None) -> ExtractedVideo:
    """Extract a view's frame file into the cache, unless it is there already; raises as `FrameExtractor.prepare`."""
    if isinstance(extractor, RelevantExtractor):
        return extractor.prepare_asked(view, info)
    return extractor.prepare(view.video_uri, info, shown=view.shown, segment=view.segment)


def log_rewritten(outcomes: Iterable[ExtractedVideo | JobError]) -> None:
    """Log the videos whose cached files could not be used, and were rewritten."""
    for outcome in outcomes:
        if not isinstance(outcome, JobError) and outcome.rewritten:
            _LOG.warning("%s: %s", redact_uri(outcome.identity.source_uri), outcome.rewritten)


def _prepare(extractor: FrameExtractor, view: View, info: ObjectInfo | None) -> tuple[ExtractedVideo | JobError, float]:
    started = time.perf_counter()
    try:
        with failing_alone(f"The extraction of {redact_uri(view.video_uri)}"):
            outcome: ExtractedVideo | JobError = prepare_view(extractor, view, info)
    except JobError as error:
        outcome = error
    return outcome, (time.perf_counter() - started) * 1e3


def _spent_ms(outcomes: Iterable[tuple[ExtractedVideo | JobError, float]]) -> dict[RunPhase, float]:
    spent_ms = dict.fromkeys(_PARTS, 0.0)
    for outcome, ms in outcomes:
        if isinstance(outcome, JobError):  # a video that hangs its decoder reports no times
            spent_ms[RunPhase.FETCH if outcome.stage == Stage.FETCH else RunPhase.DECODE] += ms
            continue
        spent_ms[RunPhase.CACHE_READ if outcome.was_cached else RunPhase.FETCH] += outcome.lookup_ms
        spent_ms[RunPhase.FETCH] += outcome.provenance.fetch_ms
        spent_ms[RunPhase.DECODE] += outcome.provenance.decode_ms
        spent_ms[RunPhase.EMBED] += outcome.provenance.embed_ms
        spent_ms[RunPhase.CACHE_WRITE] += outcome.provenance.cache_write_ms
    return spent_ms
