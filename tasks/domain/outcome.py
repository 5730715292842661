"""How a job ended: one label or one failure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.domain.job import Job


class Stage(StrEnum):
    """Where in the pipeline something happened."""

    FETCH = "fetch"
    DECODE = "decode"
    CACHE = "cache"
    PROMPT = "prompt"
    INFERENCE = "inference"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderBias:
    """How much it mattered in which order one job's choices were shown.

    Attributes:
        permutations: Orders asked, at least two.
        agreement: Share of the orders whose own label is that of their average, 0 to 1.
        spread: Largest difference that another order made to one choice's probability, 0 to 1.
        same_position: Whether every order chose the same position, whatever stood there.
    """

    permutations: int
    agreement: float
    spread: float
    same_position: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the model said about one job; sums over its orders, where it was asked in several.

    Attributes:
        choice_index: Position of the most probable choice.
        probabilities: One per choice, summing to one; the average of its orders.
        prompt_tokens: Tokens of the rendered prompt, video included.
        cached_tokens: Those of them served by the prefix cache.
        preprocess_ms: Milliseconds of the model's own processor for this job.
        inference_ms: This job's share of its batch's engine milliseconds.
        order: None where the choices were shown in one order only.
    """

    choice_index: int
    probabilities: tuple[float, ...]
    prompt_tokens: int
    cached_tokens: int
    preprocess_ms: float
    inference_ms: float
    order: OrderBias | None = None

    def __post_init__(self) -> None:
        """Check that the probabilities are a distribution over the choices."""
        if not 0 <= self.choice_index < len(self.probabilities):
            raise ValueError(f"choice_index {self.choice_index} outside {len(self.probabilities)} choices")
        if not math.isclose(sum(self.probabilities), 1.0, abs_tol=1e-3):
            raise ValueError(f"probabilities sum to {sum(self.probabilities)}, not 1")

    @property
    def margin(self) -> float:
        """Difference between the two highest probabilities."""
        first, second = sorted(self.probabilities, reverse=True)[:2]
        return first - second

    @property
    def entropy_nats(self) -> float:
        """Shannon's entropy of the probabilities: 0 where one choice has all, ln(n) where n are equally likely."""
        # Rounding may lift a probability above one, and its term below zero.
        return max(0.0, -math.fsum(share * math.log(share) for share in self.probabilities if share > 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstAnswer:
    """What was answered before it was decided whether to ask again.

    Attributes:
        label: The answer's text.
        margin: Difference between its two highest probabilities.
        below: The margin below which jobs were asked again.
    """

    label: str
    margin: float
    below: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """One labelled job, as it lands in the results table. Durations are milliseconds.

    Attributes:
        decode_method: How its frames were reached; see `tasks.video.keyframes`.
        decode_note: Why not by the shortest way, or what is wrong with the file; empty where all is well.
        sampler: What chose its frames.
        frames_decoded: Frames that came out of a decoder for them, now or when they were cached.
        bytes_fetched: Bytes of the video that were read for them; 0 where they were cached.
        longest_gap_s: Longest time of the video without a keyframe; None where unknown.
        keyframe_cover: Share of the video that is near a keyframe; None where unknown.
        verdict: Codes of why keyframes may not be enough for the video, by commas; empty where they are.
        routed_by: What decided against keyframes: the job's `task`, the video's `verdict`, or the first answer's
            `margin`; empty where nothing did.
        first: The first answer of a cascade; None elsewhere.
    """

    job: Job
    source_fingerprint: str
    answer: Answer
    keyframes_in_file: int | None
    frames_used: int
    fetch_ms: float
    decode_ms: float
    cache_write_ms: float
    cache_read_ms: float
    shard_index: int
    decode_method: str = ""
    decode_note: str = ""
    sampler: str = "keyframes"
    frames_decoded: int = 0
    bytes_fetched: int = 0
    longest_gap_s: float | None = None
    keyframe_cover: float | None = None
    verdict: str = ""
    routed_by: str = ""
    first: FirstAnswer | None = None

    @property
    def label(self) -> str:
        """The chosen answer's text."""
        return self.job.choices[self.answer.choice_index]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One job that cannot be labelled.

    Attributes:
        source_fingerprint: None where the source could not even be looked at.
        code: Stable code of the error (see `infra.errors`).
        message: A sentence that says what is wrong and what to do.
    """

    job: Job
    stage: Stage
    code: str
    message: str
    shard_index: int
    source_fingerprint: str | None = field(default=None)
