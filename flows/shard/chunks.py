"""Chunks of a shard's jobs: cut before their extraction, and made one outcome a job after their inference."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from infra.log_context import in_context
from reelabel.errors import InternalError, JobError
from reelabel.sources.object_info import redact_uri
from reelabel.unexpected import failing_alone
from reelabel_engine.errors import InferenceError
from tasks.domain import Failure, JobResult
from tasks.domain.chunks import ChunkOutcome, CutShard, cut_job, cut_shard, merge_chunks, split_chunk_id
from tasks.results.chunks import EarlierChunks
from tasks.survey.chunks import stated_length_s

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor

    from flows.shard.answering import AnswerContext, ShardOutcome
    from reelabel.frames.extractor import FrameExtractor
    from reelabel.sources.object_store import ObjectInfo
    from tasks.domain import Job, Shard


@dataclass(frozen=True, slots=True)
class ChunkedShard:
    """A shard with its jobs cut.

    Attributes:
        cut: The shard.
        faults: Why the jobs on some videos could not be cut, by URI; these jobs fail.
        known: The versions of the videos by which they were cut, by URI; None if none had to be looked up.
    """

    cut: CutShard
    faults: Mapping[str, JobError] = field(default_factory=dict)
    known: Mapping[str, ObjectInfo] | None = None


def cut_into_chunks(shard: Shard, extractor: FrameExtractor, *, workers: Executor) -> ChunkedShard:
    """Cut the jobs of a shard that the plan wants cut, by the lengths that their videos state.

    The indexes that are read stay in the extractor's cache.

    Raises:
        TransientError: The store is unavailable.
    """
    jobs: dict[str, list[Job]] = {}
    for job in shard.jobs:
        if job.chunk_s is not None:
            jobs.setdefault(job.video_uri, []).append(job)
    if not jobs:
        return ChunkedShard(cut_shard(shard, {}))
    known = extractor.stat_many(shard.video_uris)

    def length_of(uri: str) -> tuple[ObjectInfo | None, float | JobError]:
        info = known.get(uri)
        try:
            with failing_alone(f"The look at {redact_uri(uri)}"):
                seen = extractor.look(uri, info)
                info = seen.info
                length_s = stated_length_s(seen, extractor.limits)
                for job in jobs[uri]:
                    cut_job(job, length_s)  # raises if there are too many chunks
        except JobError as error:
            error.fingerprint = error.fingerprint or (info.fingerprint if info else None)
            return info, error
        return info, length_s

    seen = dict(zip(jobs, workers.map(in_context(length_of), jobs), strict=True))
    return ChunkedShard(
        cut_shard(shard, {uri: found for uri, (_, found) in seen.items() if not isinstance(found, JobError)}),
        {uri: found for uri, (_, found) in seen.items() if isinstance(found, JobError)},
        {**known, **{uri: info for uri, (info, _) in seen.items() if info}},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJobs:
    """The outcomes of a shard's jobs, each one label or one failure; and of their chunks, those to write.

    Attributes:
        merged_with: As of `tasks.results.write.EndedShard`.
    """

    results: Sequence[JobResult]
    failures: Sequence[Failure]
    chunks: Sequence[ChunkOutcome] = ()
    merged_with: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def with_refused(self, refused: Mapping[str, Failure]) -> EndedJobs:
        """Return it with failures in place of the outcomes of some jobs, by their ids."""
        return replace(
            self,
            results=[each for each in self.results if each.job.job_id not in refused],
            failures=[*(each for each in self.failures if each.job.job_id not in refused), *refused.values()],
        )


def merge_ended(cut: CutShard, outcome: ShardOutcome, context: AnswerContext, *, fence: int) -> EndedJobs:
    """Make one outcome a job of those of its chunks, and of the chunks that were not asked about this time.

    Chunks that were written under a higher fence than that of the shard's lease meanwhile stay.

    Raises:
        DatabaseUnavailableError: The earlier outcomes of chunks cannot be read.
    """
    rule = context.spec.chunk_rule
    if not cut.jobs or rule is None:
        return EndedJobs(results=outcome.results, failures=outcome.failures)
    asked: dict[str, dict[int, ChunkOutcome]] = {job_id: {} for job_id in cut.jobs}
    whole: list[JobResult | Failure] = []
    answered: list[JobResult | Failure] = [*outcome.results, *outcome.failures]
    for each in answered:
        job_id, number = split_chunk_id(each.job.job_id)
        if number is None or job_id not in cut.jobs:
            whole.append(each)
        else:
            asked[job_id][number] = ChunkOutcome(job=cut.jobs[job_id].job, number=number, outcome=each)
    kept = [each for each in cut.jobs.values() if each.job.only_chunks is not None]
    rows = context.earlier_chunks(kept) if kept else {}
    merged_with: dict[str, Mapping[int, int]] = {}
    merged: dict[str, JobResult | Failure] = {}
    for job_id, parts in cut.jobs.items():
        is_partial, earlier = parts.job.only_chunks is not None, rows.get(job_id, EarlierChunks())
        ours = {number: chunk for number, chunk in asked[job_id].items() if earlier.fences.get(number, 0) <= fence}
        try:
            with failing_alone(f"Merging the chunks of job {job_id}", stage=InferenceError.stage):
                merged[job_id] = merge_chunks(parts, earlier.outcomes, ours or asked[job_id], rule)
        except InternalError as error:
            merged[job_id] = Failure.of(error, parts.job, outcome.index)
        asked[job_id] = ours if merged[job_id].chunks else {}  # else its outcome follows from none of them
        if is_partial and asked[job_id]:
            merged_with[job_id] = earlier.fences
    ended = [*whole, *merged.values()]
    return EndedJobs(
        results=[each for each in ended if isinstance(each, JobResult)],
        failures=[each for each in ended if isinstance(each, Failure)],
        chunks=[chunk for chunks in asked.values() for chunk in chunks.values()],
        merged_with=merged_with,
    )
