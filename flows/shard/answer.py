"""Jobs answered outside of a run: nothing is leased, and no row is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from flows.shard.answering import ShardOutcome
from flows.shard.chunks import EndedJobs, cut_into_chunks, merge_ended
from flows.shard.extract import ViewStream, extract_views
from flows.shard.infer import escalate, infer_views
from flows.shard.report import stage_ms_of
from tasks.domain import group_by_views

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Executor

    from flows.shard.answering import AnswerContext
    from tasks.domain import Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredShard:
    """How jobs ended that belong to no run.

    Attributes:
        ended: One label or one failure a job.
        stage_ms: Milliseconds by step of a stage.
    """

    ended: EndedJobs
    stage_ms: Mapping[str, float] = field(repr=False)


def answer_shard(shard: Shard, context: AnswerContext, *, workers: Executor) -> AnsweredShard:
    """Extract and answer a shard's jobs, as a run does.

    Raises:
        TransientError: The store or the engine is unavailable.
    """
    extractor, stream, outcome = context.extractor, ViewStream(), ShardOutcome(index=shard.index)
    chunked = stream.begin(lambda: cut_into_chunks(shard, extractor, workers=workers))
    shown = group_by_views(chunked.cut.shard.jobs, extractor.sampling)
    views = tuple(dict.fromkeys(chain.from_iterable(shown)))
    stream.expect(len(views))
    stream.end(extract_views(shard, views, extractor, workers=workers, stream=stream, chunked=chunked))
    infer_views(stream, shown, context, outcome)
    if context.escalate_below is not None:
        escalate(context, outcome, below=context.escalate_below)
    return AnsweredShard(ended=merge_ended(chunked.cut, outcome, {}, context), stage_ms=stage_ms_of(outcome))
