"""Chunks: jobs on long videos are cut into jobs on consecutive parts, whose answers together make one."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING

from reelabel.errors import VideoChangedError, VideoTooLargeError
from reelabel.record import merge_records
from reelabel.segment import Segment
from tasks.domain.chunk_rule import judge
from tasks.domain.media import merge_provenance
from tasks.domain.outcome import PASSING_CODES, ChunkCounts, Failure, JobResult, OrderBias, Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tasks.domain.job import Job, Shard
    from tasks.domain.outcome import Answer

MAX_CHUNKS = 10_000
MARK = "#"
_NUMBERED = re.compile(r"(?P<job_id>.+)#(?P<number>0|[1-9][0-9]{0,8})", re.DOTALL)
# Segments include both ends: without a gap, a frame on an edge would be in two chunks. Twice the tolerance of segments.
_EDGE_S = 2e-4


def split_chunk_id(chunk_id: str) -> tuple[str, int | None]:
    """Split `job#3` into the job's id and the number of the chunk; None if the id names no chunk."""
    found = _NUMBERED.fullmatch(chunk_id)
    return (found["job_id"], int(found["number"])) if found else (chunk_id, None)


def cut_segment(segment: Segment, *, length_s: float, chunk_s: float) -> list[Segment]:
    """Cut a segment into chunks of `chunk_s` seconds, one after another; the k-th begins at k times `chunk_s`.

    A rest of less than half a chunk belongs to the chunk before it. A segment of one chunk is returned as it is.

    Raises:
        VideoTooLargeError: It would be more than `MAX_CHUNKS`.
    """
    start_s, end_s = segment.start_s or 0.0, length_s if segment.end_s is None else min(segment.end_s, length_s)
    count = max(1, math.floor((end_s - start_s) / chunk_s + 0.5))
    if count > MAX_CHUNKS:
        raise VideoTooLargeError(
            f"{end_s - start_s:,.0f} s are {count:,} chunks of {chunk_s:g} s, and at most {MAX_CHUNKS:,} are allowed; "
            "use longer chunks."
        )
    edges_s = [round(start_s + number * chunk_s, 6) for number in range(1, count)]
    starts = [segment.start_s, *edges_s]
    ends = [*(round(edge_s - _EDGE_S, 6) for edge_s in edges_s), segment.end_s]
    return [Segment.of(*ends_of) for ends_of in zip(starts, ends, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutJob:
    """A job, and its chunks as jobs of their own.

    Attributes:
        job: The job.
        chunks: All of its chunks, in order; empty if it could not be cut.
    """

    job: Job
    chunks: tuple[Job, ...]

    @property
    def asked(self) -> tuple[Job, ...]:
        """The jobs to ask about: its chunks, or those of them that are wanted, or the job itself."""
        only = self.job.only_chunks
        return tuple(self.chunks[number] for number in only) if only else self.chunks or (self.job,)


def cut_job(job: Job, length_s: float | None) -> CutJob:
    """Cut a job by its `chunk_s`; without a length, it is left as it is.

    Raises:
        VideoTooLargeError: It would be more than `MAX_CHUNKS`.
    """
    if job.chunk_s is None or length_s is None:
        return CutJob(job=job, chunks=())
    segments = cut_segment(Segment.of(job.start_s, job.end_s), length_s=length_s, chunk_s=job.chunk_s)
    only = tuple(number for number in job.only_chunks or () if number < len(segments)) or None
    return CutJob(
        job=replace(job, only_chunks=only),  # of another video in the meantime, which may be shorter, all are asked
        chunks=tuple(
            replace(
                job,
                job_id=f"{job.job_id}{MARK}{number}",
                start_s=segment.start_s,
                end_s=segment.end_s,
                chunk_s=None,
                only_chunks=None,
            )
            for number, segment in enumerate(segments)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CutShard:
    """A shard whose jobs are cut.

    Attributes:
        shard: Its jobs as they are asked: chunks, and jobs that are not cut.
        jobs: The jobs that were cut, by id.
        lengths_s: Length in seconds of each video whose jobs were cut.
    """

    shard: Shard
    jobs: Mapping[str, CutJob] = field(repr=False)
    lengths_s: Mapping[str, float] = field(repr=False)


def cut_shard(shard: Shard, lengths_s: Mapping[str, float]) -> CutShard:
    """Cut the jobs of a shard, by the lengths in seconds of their videos; jobs on others are left as they are.

    Raises:
        VideoTooLargeError: A job would be more than `MAX_CHUNKS`.
    """
    if not lengths_s:
        return CutShard(shard=shard, jobs={}, lengths_s={})
    cut = [cut_job(job, lengths_s.get(job.video_uri)) for job in shard.jobs]
    return CutShard(
        shard=replace(shard, jobs=tuple(asked for each in cut for asked in each.asked)),
        jobs={each.job.job_id: each for each in cut if each.chunks},
        lengths_s=lengths_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkOutcome:
    """How a chunk ended.

    Attributes:
        job: The job that it is a chunk of.
        number: Position among its chunks, from 0.
        outcome: The outcome of the chunk as a job of its own.
    """

    job: Job
    number: int
    outcome: JobResult | Failure

    @property
    def fingerprint(self) -> str | None:
        """Version of the video that it is about; None if it could not be reached."""
        outcome = self.outcome
        return outcome.provenance.fingerprint if isinstance(outcome, JobResult) else outcome.source_fingerprint


def merge_chunks(
    cut: CutJob, earlier: Mapping[int, ChunkOutcome], asked: Mapping[int, ChunkOutcome], rule: str
) -> JobResult | Failure:
    """Make one outcome of those of a job's chunks: those of an earlier time, and those that were asked about now.

    It is a label if every chunk has an answer, or if the others cannot change it any more; otherwise a failure. If the
    chunks are not all there, or are about different versions of the video, the failure follows from none of them.
    """
    known = {**earlier, **asked}
    outcomes = [known[number] for number in range(len(cut.chunks)) if number in known]
    results = [each.outcome for each in outcomes if isinstance(each.outcome, JobResult)]
    failures = [each for each in outcomes if isinstance(each.outcome, Failure)]
    counts = ChunkCounts(total=len(cut.chunks), answered=len(results))
    if len(outcomes) < counts.total or len({result.provenance.fingerprint for result in results}) > 1:
        return _changed(cut.job, asked)
    if not results:
        return _undecided(cut, failures, rule, counts)
    answers = [result.answer for result in results]
    verdict = judge(rule, answers, cut.job.choices, unanswered=len(failures))
    if not verdict.stands:
        return _undecided(cut, failures, rule, counts)
    return JobResult(
        job=cut.job,
        answer=replace(
            reduce(merge_records, answers),
            choice_index=verdict.choice_index,
            probabilities=verdict.probabilities,
            order=_merge_orders(answers),
        ),
        provenance=merge_provenance([result.provenance for result in results]),
        shard_index=results[-1].shard_index,
        routed_by=next((result.routed_by for result in results if result.routed_by), ""),
        first=results[0].first if counts.total == 1 else None,
        chunks=counts,
    )


def _merge_orders(answers: Iterable[Answer]) -> OrderBias | None:
    orders = [answer.order for answer in answers if answer.order]
    if not orders:
        return None
    return OrderBias(
        permutations=orders[0].permutations,
        agreement=sum(order.agreement for order in orders) / len(orders),
        spread=max(order.spread for order in orders),
        same_position=all(order.same_position for order in orders),
    )


def _changed(job: Job, asked: Mapping[int, ChunkOutcome]) -> Failure:
    fingerprints = [each.fingerprint for each in asked.values() if each.fingerprint]
    return Failure(
        job=job,
        stage=Stage.FETCH,
        code=VideoChangedError.code,
        message="Its chunks were answered about different versions of the video; ask about all of them again: "
        f"reelabel backfill --ids {job.job_id}",
        shard_index=next(iter(asked.values())).outcome.shard_index,
        source_fingerprint=fingerprints[-1] if fingerprints else None,
    )


def _undecided(cut: CutJob, failed: Sequence[ChunkOutcome], rule: str, counts: ChunkCounts) -> Failure:
    """Fail a job with the cause of a chunk's failure: of one that the next run may repeat, if there is one."""
    causes = [(each.number, each.outcome) for each in failed if isinstance(each.outcome, Failure)]
    number, cause = min(causes, key=lambda each: not _may_pass(each[1]))
    message = cause.message
    if counts.total > 1:
        chunk = cut.chunks[number]
        ends = "its end" if chunk.end_s is None else f"{chunk.end_s:g} s"
        message = (
            f"{len(causes):,} of {counts.total:,} chunks failed, which leaves {rule} undecided; "
            f"{chunk.job_id}, from {chunk.start_s or 0:g} s to {ends}: {message}"
        )
    return replace(cause, job=cut.job, message=message, chunks=counts)


def _may_pass(cause: Failure) -> bool:
    """Return whether another attempt may succeed, so that the next run makes one."""
    return cause.stage == Stage.CACHE or cause.code in PASSING_CODES
