"""Outcomes of jobs: a label, an answer in words, or a failure."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce
from typing import TYPE_CHECKING, Self

from infra.errors import ServerFailedError
from reelabel.errors import InternalError, VideoUnavailableError
from reelabel.sources.object_info import redact_uri
from tasks.domain.job import join_fingerprints
from tasks.domain.record import Json, Merge, column, merge_records, merged, without_sums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reelabel.errors import JobError
    from reelabel_engine.protocol import Rejected
    from tasks.domain.job import Job, Medium
    from tasks.domain.provenance import FrameProvenance

# Codes of failures that the next run retries: of web servers, of a server that answers others, and internal ones.
PASSING_CODES = frozenset({VideoUnavailableError.code, InternalError.code, ServerFailedError.code})
_SHOWN_NOTES = 3


class Stage(StrEnum):
    FETCH = "fetch"
    DECODE = "decode"
    CACHE = "cache"
    PROMPT = "prompt"
    INFERENCE = "inference"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderBias:
    """How much the order of one job's choices influenced its answer."""

    permutations: int = column(Merge.LAST, "Number of orders, at least two.", bits=16)
    agreement: float = column(
        Merge.LAST, "Fraction of the orders whose own label equals that of the average, 0 to 1.", name="order_agreement"
    )
    spread: float = column(
        Merge.LAST, "Largest difference between orders in the probability of a choice, 0 to 1.", name="order_spread"
    )
    same_position: bool = column(Merge.LAST, "Whether every order chose the same position, whatever choice was there.")


# If all choices together have a lower probability, the model would have answered something else than a label.
LOW_CHOICE_MASS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """An answer to a job without choices."""

    text: str | None = column(Merge.LAST, "The answer in words; null with choices, or with a schema.", default=None)
    data: Json | None = column(Merge.LAST, "The answer as JSON; null without a schema.", default=None)
    finish_reason: str = column(
        Merge.LAST, "Why the answer in words ended: `stop`, or `length` at `max_tokens`; null with choices."
    )
    output_tokens: int = column(Merge.LAST, "Tokens of the answer in words; null with choices.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The model's answer to one job; counts and times are summed over its choice orders.

    Fields with a `column` are columns of the results table.

    Attributes:
        probabilities: One per choice, summing to one; averaged over the orders. Empty for an answer in words.
        order: None if the choices were shown in one order only.
        words: The answer to a job without choices.
    """

    choice_index: int | None = column(
        Merge.LAST, "Index of the most probable choice; null for an answer in words.", default=None, bits=16
    )
    probabilities: tuple[float, ...] = merged(Merge.LAST, default=())
    choice_mass: float | None = column(
        Merge.LAST,
        (
            "Probability of all choices together before they were normalised, averaged over the orders;"
            " close to 0 if the model would have said something else. null if unknown."
        ),
        default=None,
    )
    prompt_tokens: int = column(Merge.SUM, "Tokens of the rendered prompt, including the video.")
    cached_tokens: int = column(Merge.SUM, "Prompt tokens served from the prefix cache.")
    preprocess_ms: float = column(Merge.SUM, "Milliseconds of the model's processor for this job.")
    inference_ms: float = column(Merge.SUM, "This job's share of the engine's milliseconds.")
    order: OrderBias | None = merged(Merge.LAST, default=None)
    words: Words | None = merged(Merge.LAST, default=None)

    def __post_init__(self) -> None:
        """Check that the probabilities are a distribution over the choices, unless the answer is in words."""
        if self.words is not None and self.choice_index is None:
            return
        if self.choice_index is None or not 0 <= self.choice_index < len(self.probabilities):
            raise ValueError(f"choice_index {self.choice_index} is out of range for {len(self.probabilities)} choices")
        if not math.isclose(sum(self.probabilities), 1.0, abs_tol=1e-3):
            raise ValueError(f"probabilities must sum to 1, got {sum(self.probabilities)}")

    @property
    def margin(self) -> float | None:
        """Difference between the two highest probabilities; None for an answer in words."""
        if self.words:
            return None
        first, second = sorted(self.probabilities, reverse=True)[:2]
        return first - second

    @property
    def entropy_nats(self) -> float | None:
        """Shannon entropy of the probabilities: 0 if one choice has all, ln(n) if n are equally likely."""
        if self.words:
            return None
        # Rounding may yield a probability above 1, whose term is negative.
        return max(0.0, -math.fsum(share * math.log(share) for share in self.probabilities if share > 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstAnswer:
    """The first answer of a job that is escalated if its margin is low."""

    label: str = column(Merge.LAST, "Text of the first answer; null without escalation.", name="first_label")
    margin: float = column(Merge.LAST, "Margin of the first answer; null without escalation.", name="first_margin")
    below: float = column(
        Merge.LAST, "Margin below which jobs were escalated; null without escalation.", name="escalate_below"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkCounts:
    total: int = column(Merge.LAST, "Number of chunks of the job; null if it was not cut.", name="chunks")
    answered: int = column(
        Merge.LAST, "Number of chunks with an answer; null if the job was not cut.", name="chunks_answered"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """One answered job, as stored in the results table.

    Attributes:
        routed_by: Why keyframes were not used: the job's `task`, the video's `coverage`, or the first answer's
            `margin`; otherwise empty.
        first: The first answer, if jobs with a low margin are escalated.
        chunks: None if the job was not cut.
        copied_from: Id of the job whose answer was copied.
    """

    job: Job
    answer: Answer
    provenance: FrameProvenance
    shard_index: int
    routed_by: str = ""
    first: FirstAnswer | None = None
    chunks: ChunkCounts | None = None
    copied_from: str | None = None

    @property
    def can_be_copied(self) -> bool:
        """Whether the video is the version that has the near-duplicates."""
        return self.provenance.fingerprint == self.job.fingerprint

    def copied_to(self, job: Job) -> JobResult:
        """Return this answer as the result of another job, on the version of its own video and without costs."""
        return replace(
            self,
            job=job,
            answer=without_sums(self.answer),
            provenance=without_sums(replace(self.provenance, fingerprint=job.fingerprint or "")),
            copied_from=self.job.job_id,
        )

    @property
    def label(self) -> str | None:
        """The chosen answer; None for an answer in words."""
        chosen = self.answer.choice_index
        return None if chosen is None else self.job.choices[chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A job that has no label.

    Attributes:
        code: Stable code of the error (see `infra.errors`).
        message: What is wrong and what to do, in one sentence.
        source_fingerprint: Version of the video; None if it could not be reached.
        chunks: None if the job was not cut.
    """

    job: Job
    stage: Stage
    code: str
    message: str
    shard_index: int
    source_fingerprint: str | None = None
    chunks: ChunkCounts | None = None

    @classmethod
    def of(cls, cause: JobError | Rejected, job: Job, shard_index: int, *, fingerprint: str | None = None) -> Self:
        return cls(
            job=job,
            stage=Stage(cause.stage),
            code=cause.code,
            message=cause.message,
            shard_index=shard_index,
            source_fingerprint=fingerprint,
        )


def needs_escalation(result: JobResult, *, below: float) -> bool:
    """Whether to escalate a job: it was answered from keyframes with a margin `below` the limit."""
    margin = result.answer.margin
    return result.provenance.sampler == "keyframes" and margin is not None and margin < below


def merge_answers(first: JobResult, second: JobResult | Failure | None, *, below: float) -> JobResult:
    """Merge the answer on keyframes and the outcome of its escalation, if there was one, into one row.

    The second answer counts if it is about the same version of the video, else the first. `below` is the margin below
    which jobs are escalated. An answer in words is never escalated, and stays as it is.
    """
    label, margin = first.label, first.answer.margin
    if label is None or margin is None:
        return first
    asked_first = FirstAnswer(label=label, margin=margin, below=below)
    if second is None:
        return replace(first, first=asked_first)
    if isinstance(second, JobResult) and second.provenance.fingerprint == first.provenance.fingerprint:
        return replace(
            second,
            answer=merge_records(first.answer, second.answer),
            provenance=merge_records(first.provenance, second.provenance),
            first=asked_first,
            routed_by="margin",
        )
    why = second.message if isinstance(second, Failure) else "the video was replaced meanwhile"
    note = "; ".join(filter(None, (first.provenance.decode_note, f"not asked again: {why}")))
    return replace(first, provenance=replace(first.provenance, decode_note=note), first=asked_first)


def merge_provenance(parts: Sequence[FrameProvenance]) -> FrameProvenance:
    """Sum the costs of several sets of frames, and take the worst coverage by keyframes."""
    if len(parts) == 1:
        return parts[0]
    gaps_s = [each.longest_gap_s for each in parts if each.longest_gap_s is not None]
    covers = [each.keyframe_coverage for each in parts if each.keyframe_coverage is not None]
    reasons = dict.fromkeys(reason for each in parts for reason in each.coverage.split(",") if reason)
    notes = list(dict.fromkeys(each.decode_note for each in parts if each.decode_note))
    return replace(
        reduce(merge_records, parts),
        sampler=Counter(each.sampler for each in parts).most_common(1)[0][0],
        decode_method=Counter(each.decode_method for each in parts).most_common(1)[0][0],
        decode_note="; ".join(notes[:_SHOWN_NOTES]),
        longest_gap_s=max(gaps_s, default=None),
        keyframe_coverage=min(covers, default=None),
        coverage=",".join(reasons),
        chosen_ms="",  # each chunk's row has its own
        frames_used=sum(each.frames_used for each in parts),
    )


def merge_media(media: Sequence[Medium], parts: Sequence[FrameProvenance]) -> FrameProvenance:
    """Merge the provenance of a job's videos and images; what concerns keyframes is that of the videos."""
    noted = [
        replace(part, decode_note=f"{redact_uri(medium.uri)}: {part.decode_note}" if part.decode_note else "")
        for medium, part in zip(media, parts, strict=True)
    ]
    videos = [part for medium, part in zip(media, noted, strict=True) if medium.kind == "video"]
    of_videos, samplers = merge_provenance(videos), {part.sampler for part in videos}
    return replace(
        merge_provenance(noted),
        fingerprint=join_fingerprints([part.fingerprint for part in parts]) or "",
        # Keyframes, if they are shown of one of the videos: a dense sampler may still show more.
        sampler="keyframes" if "keyframes" in samplers else of_videos.sampler,
        decode_method=of_videos.decode_method,
        keyframes_in_file=sum(part.keyframes_in_file for part in videos),
        longest_gap_s=of_videos.longest_gap_s,
        keyframe_coverage=of_videos.keyframe_coverage,
        coverage=of_videos.coverage,
    )
