"""Chunks: jobs on long videos are cut into jobs on consecutive parts, whose answers are combined to one."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import AfterValidator

from reelabel.errors import VideoChangedError, VideoTooLargeError
from reelabel.segment import Segment
from tasks.domain.outcome import PASSING_CODES, ChunkCounts, Failure, JobResult, OrderBias, Stage, merge_provenance
from tasks.domain.record import merge_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from reelabel.errors import JobError
    from reelabel.sources.object_info import ObjectInfo
    from tasks.domain.job import Job, Shard
    from tasks.domain.outcome import Answer

SHORTEST_CHUNK_S = 1.0
DEFAULT_RULE = "majority"
_ANY = "any:"
MAX_CHUNKS = 10_000
MARK = "#"
_NUMBERED = re.compile(r"(?P<job_id>.+)#(?P<number>0|[1-9][0-9]{0,8})", re.DOTALL)
# Segments include both ends: without a gap of twice their tolerance, a frame on an edge would be in two chunks.
_EDGE_S = 2e-4


def split_chunk_id(chunk_id: str) -> tuple[str, int | None]:
    """Split `job#3` into the job's id and the number of the chunk; None if the id names no chunk."""
    found = _NUMBERED.fullmatch(chunk_id)
    return (found["job_id"], int(found["number"])) if found else (chunk_id, None)


def cut_segment(segment: Segment, *, length_s: float, chunk_s: float) -> list[Segment]:
    """Cut a segment of a video of `length_s` into consecutive chunks of `chunk_s` seconds.

    A rest of less than half a chunk is part of the chunk before it. A segment of one chunk stays as it is.

    Raises:
        VideoTooLargeError: There would be more than `MAX_CHUNKS`.
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
    """A job, and its chunks as jobs of their own, in order; empty if it is not cut."""

    job: Job
    chunks: tuple[Job, ...]


def cut_job(job: Job, length_s: float | None) -> CutJob:
    """Cut a job by its `chunk_s`, if it has one and the length of its video is known.

    Raises:
        VideoTooLargeError: There would be more than `MAX_CHUNKS`.
    """
    if job.chunk_s is None or length_s is None:
        return CutJob(job=job, chunks=())
    segments = cut_segment(Segment.of(job.start_s, job.end_s), length_s=length_s, chunk_s=job.chunk_s)
    return CutJob(
        job=job,
        chunks=tuple(
            replace(
                job,
                job_id=f"{job.job_id}{MARK}{number}",
                start_s=segment.start_s,
                end_s=segment.end_s,
                chunk_s=None,
                asks_again=False,
            )
            for number, segment in enumerate(segments)
        ),
    )


class CutVideo(NamedTuple):
    """A video whose jobs are cut: its length in seconds, and its version."""

    length_s: float
    fingerprint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CutShard:
    """A shard whose jobs are cut.

    Attributes:
        shard: The jobs to answer: chunks, and jobs that are not cut.
        jobs: The jobs that were cut, by id.
        videos: The videos whose jobs were cut, by URI.
        copies: Jobs that get the answer of another job, by its id; they are answered themselves if it fails.
        faults: Why the jobs on some videos cannot be cut, by URI; these jobs fail.
        known: The info of the videos that was looked up to cut their jobs, by URI; None if no job was to be cut.
    """

    shard: Shard
    jobs: Mapping[str, CutJob] = field(repr=False)
    videos: Mapping[str, CutVideo] = field(repr=False)
    copies: Mapping[str, Sequence[Job]] = field(default_factory=dict, repr=False)
    faults: Mapping[str, JobError] = field(default_factory=dict)
    known: Mapping[str, ObjectInfo] | None = field(default=None, repr=False)


def cut_shard(shard: Shard, videos: Mapping[str, CutVideo]) -> CutShard:
    """Cut the jobs of a shard on `videos`; other jobs stay as they are."""
    if not videos:
        firsts, copies = split_copies(shard.jobs)
        return CutShard(shard=replace(shard, jobs=firsts), jobs={}, videos={}, copies=copies)
    cut = [cut_job(job, videos[job.video_uri].length_s if job.video_uri in videos else None) for job in shard.jobs]
    return CutShard(
        shard=replace(shard, jobs=tuple(job for each in cut for job in each.chunks or (each.job,))),
        jobs={each.job.job_id: each for each in cut if each.chunks},
        videos=videos,
    )


def split_copies(jobs: Sequence[Job]) -> tuple[tuple[Job, ...], dict[str, list[Job]]]:
    """Return the first job of each group and all jobs without one, and the other jobs by the id of the first."""
    answered: list[Job] = []
    firsts: dict[str, str] = {}
    copies: dict[str, list[Job]] = {}
    for job in jobs:
        first = job.job_id if job.group is None else firsts.setdefault(job.group, job.job_id)
        if first == job.job_id:
            answered.append(job)
        else:
            copies.setdefault(first, []).append(job)
    return tuple(answered), copies


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkOutcome:
    """The outcome of chunk `number`, from 0, of a job."""

    job: Job
    number: int
    outcome: JobResult | Failure

    @property
    def fingerprint(self) -> str | None:
        """Version of the video; None if it could not be reached."""
        outcome = self.outcome
        return outcome.provenance.fingerprint if isinstance(outcome, JobResult) else outcome.source_fingerprint


def merge_chunks(cut: CutJob, outcomes: Sequence[ChunkOutcome], rule: str) -> JobResult | Failure:
    """Combine the outcomes of all chunks of a job, in order.

    The result is a label if every chunk has an answer, or if the others cannot change it; otherwise a failure, also if
    the chunks are about different versions of the video.
    """
    results = [each.outcome for each in outcomes if isinstance(each.outcome, JobResult)]
    failures = [each for each in outcomes if isinstance(each.outcome, Failure)]
    counts = ChunkCounts(total=len(cut.chunks), answered=len(results))
    if len({result.provenance.fingerprint for result in results}) > 1:
        return _changed(cut.job, outcomes)
    if not results:
        return _undecided(cut, failures, rule, counts)
    answers = [result.answer for result in results]
    verdict = combine(rule, answers, cut.job.choices, unanswered=len(failures))
    if not verdict.is_final:
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


def _changed(job: Job, outcomes: Sequence[ChunkOutcome]) -> Failure:
    fingerprints = [each.fingerprint for each in outcomes if each.fingerprint]
    return Failure(
        job=job,
        stage=Stage.FETCH,
        code=VideoChangedError.code,
        message="Its chunks were answered about different versions of the video; backfill this job to ask about all "
        "of them again.",
        shard_index=outcomes[0].outcome.shard_index,
        source_fingerprint=fingerprints[-1] if fingerprints else None,
    )


def _undecided(cut: CutJob, failed: Sequence[ChunkOutcome], rule: str, counts: ChunkCounts) -> Failure:
    """Fail a job with the cause of a chunk's failure, if possible of one that the next run repeats."""
    causes = [(each.number, each.outcome) for each in failed if isinstance(each.outcome, Failure)]
    number, cause = max(causes, key=lambda each: each[1].stage == Stage.CACHE or each[1].code in PASSING_CODES)
    message = cause.message
    if counts.total > 1:
        chunk = cut.chunks[number]
        ends = "its end" if chunk.end_s is None else f"{round(chunk.end_s, 2):g} s"
        message = (
            f"{len(causes):,} of {counts.total:,} chunks failed, which leaves {rule} undecided; "
            f"{chunk.job_id}, from {chunk.start_s or 0:g} s to {ends}: {message}"
        )
    return replace(cause, job=cut.job, message=message, chunks=counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer to a job by a rule.

    Attributes:
        probabilities: One per choice.
        is_final: Whether no answer of the chunks without one could change the choice.
    """

    choice_index: int | None
    probabilities: tuple[float, ...]
    is_final: bool


def check_rule(text: str) -> str:
    """Return the name of a rule; raise ValueError if there is no such rule."""
    if text in _RULES or (text.startswith(_ANY) and text != _ANY):
        return text
    raise ValueError("use majority, mean, or any:CHOICE with one of the choices, such as any:yes")


ChunkRuleName = Annotated[str, AfterValidator(check_rule)]


def choice_of(rule: str) -> str | None:
    """Return the choice that `any:CHOICE` looks for; None for other rules."""
    return rule.removeprefix(_ANY) if rule.startswith(_ANY) else None


def combine(rule: str, answers: Sequence[Answer], choices: Sequence[str], *, unanswered: int) -> Verdict:
    """Apply a rule to the answers to a job's chunks, at least one, in order."""
    if len(answers) == 1 and not unanswered:
        return Verdict(choice_index=answers[0].choice_index, probabilities=answers[0].probabilities, is_final=True)
    choice = choice_of(rule)
    if choice is not None:
        return _combine_any(choices.index(choice), answers, unanswered)
    return _combine_by_scores(_RULES[rule](answers), answers, unanswered)


def _votes(answers: Sequence[Answer]) -> list[float]:
    chosen = [answer.choice_index for answer in answers]
    return [float(chosen.count(choice)) for choice in range(len(answers[0].probabilities))]


def _sums(answers: Sequence[Answer]) -> list[float]:
    return [sum(shares) for shares in zip(*(answer.probabilities for answer in answers), strict=True)]


_RULES: dict[str, Callable[[Sequence[Answer]], list[float]]] = {"majority": _votes, "mean": _sums}


def _combine_by_scores(scores: Sequence[float], answers: Sequence[Answer], unanswered: int) -> Verdict:
    """Choose the highest score; of equal ones, the choice with the higher mean probability, then the first.

    A chunk adds at most 1 to a score, so a lead of more than the number of unanswered chunks is final.
    """
    by_score = sorted(range(len(scores)), key=lambda choice: (scores[choice], _sums(answers)[choice]), reverse=True)
    lead = scores[by_score[0]] - scores[by_score[1]]
    return Verdict(
        choice_index=by_score[0],
        probabilities=tuple(score / len(answers) for score in scores),
        is_final=not unanswered or lead > unanswered,
    )


def _combine_any(choice: int, answers: Sequence[Answer], unanswered: int) -> Verdict:
    """Return the answer to one chunk.

    It is the answer that gives the choice the highest probability: among those that choose it or, if there are none,
    among those with the majority's choice.
    """
    found = [answer for answer in answers if answer.choice_index == choice]
    if not found:
        usual = _combine_by_scores(_votes(answers), answers, 0).choice_index
        closest = [answer for answer in answers if answer.choice_index == usual]
    decisive = max(found or closest, key=lambda answer: answer.probabilities[choice])
    return Verdict(
        choice_index=decisive.choice_index,
        probabilities=decisive.probabilities,
        is_final=bool(found) or not unanswered,
    )
