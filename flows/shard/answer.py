"""Jobs answered outside of a run: nothing is leased, and no row is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from flows.shard.chunks import EndedJobs, cut_into_chunks, merge_ended
from flows.shard.extract import ViewStream, extract_views
from flows.shard.infer import ShardOutcome, escalate, infer_views
from flows.shard.report import stage_ms_of
from tasks.domain import group_by_views

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Executor

    from flows.shard.infer import AnswerContext
    from reelabel.frames.extractor import FrameExtractor
    from tasks.domain import Job, Shard, View
    from tasks.domain.chunks import CutShard


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredShard:
    """How jobs ended that belong to no run.

    Attributes:
        ended: One label or one failure a job.
        stage_ms: Milliseconds by step of a stage.
    """

    ended: EndedJobs
    stage_ms: Mapping[str, float] = field(repr=False)


@dataclass(frozen=True, slots=True)
class PreparedShard:
    """Jobs whose videos are extracted.

    Attributes:
        shard: The jobs, cut into chunks.
        shown: The jobs, or their chunks, by what they are shown.
        stream: The outcomes of the views.
    """

    shard: CutShard
    shown: Mapping[tuple[View, ...], list[Job]] = field(repr=False)
    stream: ViewStream = field(repr=False)


def prepare_shard(shard: Shard, extractor: FrameExtractor, *, workers: Executor) -> PreparedShard:
    """Extract the videos of a shard's jobs, as a run does.

    Args:
        shard: The jobs.
        extractor: Extracts into the cache.
        workers: Threads that prepare videos.

    Raises:
        TransientError: The store is unavailable.
    """
    stream = ViewStream()
    chunked = stream.begin(lambda: cut_into_chunks(shard, extractor, workers=workers))
    shown = group_by_views(chunked.cut.shard.jobs, extractor.sampling)
    views = tuple(dict.fromkeys(chain.from_iterable(shown)))
    stream.expect(len(views))
    stream.end(extract_views(shard, views, extractor, workers=workers, stream=stream, chunked=chunked))
    return PreparedShard(chunked.cut, shown, stream)


def answer_shard(
    shard: Shard, context: AnswerContext, *, workers: Executor, go_on: Callable[[], object] = lambda: None
) -> AnsweredShard:
    """Extract and answer a shard's jobs, as a run does.

    Args:
        shard: The jobs.
        context: What answers them.
        workers: Threads that prepare videos.
        go_on: Called between the stages; raises if nobody waits for the answers any more.

    Raises:
        TransientError: The store or the engine is unavailable.
    """
    prepared, outcome = prepare_shard(shard, context.extractor, workers=workers), ShardOutcome(index=shard.index)
    go_on()
    infer_views(prepared.stream, prepared.shown, context, outcome)
    if context.escalate_below is not None:
        go_on()
        escalate(context, outcome, below=context.escalate_below)
    return AnsweredShard(ended=merge_ended(prepared.shard, outcome, context, fence=0), stage_ms=stage_ms_of(outcome))
