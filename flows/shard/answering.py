"""Contexts and outcomes of inference on a shard, and batches that outlast outages of a server."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from flows.shard.retry import retry_outage
from infra.errors import ServerFailedError, ServerUnavailableError
from reelabel.errors import ConfigurationError
from reelabel.text import pluralize
from reelabel_engine.protocol import Rejected
from tasks.domain import RunPhase, View, WallClockProfile
from tasks.results.chunks import read_answered_chunks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reelabel_engine.protocol import Batch
    from tasks.domain import Failure, JobResult, RunSpec
    from tasks.domain.chunks import CutShard
    from tasks.frame_cache.extractor import ExtractedVideo, FrameExtractor
    from tasks.model.backend import InferenceBackend, Reply
    from tasks.results.write import ShardWriter

Shown: TypeAlias = tuple[View, ...]  # everything that a job shows, in order

_ENDS_PER_QUESTION = 2  # of the server, while a question is asked alone, after which it fails
_MAX_OUTAGES = 5  # in a row, without a reply
_MEANING_LABELS = 8  # fewer may be odd questions


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerContext:
    """The model, the frames and the limits by which jobs are answered.

    Attributes:
        batch_bytes: Maximum frame bytes in one group of a shard.
        extractor: Has extracted what is read, and prepares the dense views of escalated jobs.
        escalate_below: Margin below which jobs are escalated; None escalates none.
    """

    spec: RunSpec
    backend: InferenceBackend
    batch_bytes: int
    extractor: FrameExtractor
    escalate_below: float | None = None
    profile: WallClockProfile = field(default_factory=WallClockProfile)

    def answered_chunks(self, cut: CutShard) -> Mapping[str, JobResult]:  # noqa: ARG002 - of a run
        """Read the answers about chunks that earlier runs had, by the chunk's id: outside of a run, none."""
        return {}

    def ask(self, batch: Batch) -> list[Reply]:
        """Answer a batch, as `InferenceBackend.answer`: outside of a run, without a wait for a server."""
        return self.backend.answer(batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceContext(AnswerContext):
    """Also writes rows, for a run.

    Attributes:
        writer: Writes the results of shards.
        gpus: GPUs that the engine holds.
        min_choice_mass: Total probability of all choices, as the median over jobs, below which labels are noise.
    """

    writer: ShardWriter
    gpus: int = 0
    min_choice_mass: float = 0.0

    def check_meaning(self, results: Sequence[JobResult]) -> None:
        """Check that the model meant the choices of a shard; a few odd questions end no run.

        Raises:
            ConfigurationError: It meant none of them.
        """
        masses = [each.answer.choice_mass for each in results if each.answer.choice_mass is not None]
        if len(masses) < _MEANING_LABELS or (median := statistics.median(masses)) >= self.min_choice_mass:
            return
        raise ConfigurationError(
            f"The model means none of the choices: together they have a probability of {median:.1g}, by the median of "
            f"{pluralize(len(masses), 'job')}, so labels would be noise. If it thinks before it answers, turn that off "
            "by model.chat_template_args, such as enable_thinking = false; otherwise try choice_scoring text or another"
            " template. To have the labels all the same, set model.min_choice_mass to 0."
        )

    def answered_chunks(self, cut: CutShard) -> Mapping[str, JobResult]:
        """Read the answers about chunks of the jobs that need not be asked for again, by the chunk's id."""
        return retry_outage(read_answered_chunks, self.writer.engine, self.writer.run, cut)

    def ask(self, batch: Batch) -> list[Reply]:
        """Answer a batch, and wait for a server that becomes unavailable; see `answer_through_outages`."""
        return answer_through_outages(self.backend, batch)

    def confirm_model(self) -> None:
        """Check that one model has given all answers so far, and wait for a server that is unavailable.

        Raises:
            ConfigurationError: Another one answers; nothing that was answered since the last check may be written.
        """
        retry_outage(self.backend.confirm_model)

    def lap(self) -> dict[str, float]:
        """Return milliseconds by part since the last lap, with the engine's share split as it reports."""
        times = self.backend.times
        split_ms = {
            RunPhase.ANSWER: times.busy_ms,
            RunPhase.PREPROCESS: times.waiting_for_input_ms,
            RunPhase.RESTART: times.restart_ms,
        }
        self.profile.split(RunPhase.ANSWER, split_ms)
        return self.profile.lap()


@dataclass(slots=True, kw_only=True)
class ShardOutcome:
    """Results of a shard so far, and milliseconds spent reading each frame file.

    Attributes:
        arrived: Number of views of the shard's stream that `videos` counts.
        second: Outcomes of escalated jobs, until they are merged.
    """

    index: int
    failures: list[Failure] = field(default_factory=list)
    began_s: float = field(default_factory=time.time)
    results: list[JobResult] = field(default_factory=list)
    read_ms: dict[View, float] = field(default_factory=dict)
    videos: list[ExtractedVideo] = field(default_factory=list)
    arrived: int = 0
    second: ShardOutcome | None = None

    @property
    def ended(self) -> set[str]:
        """Ids of the jobs that have an outcome."""
        return {each.job.job_id for each in self.results} | {each.job.job_id for each in self.failures}


def answer_through_outages(backend: InferenceBackend, batch: Batch) -> list[Reply]:
    """Answer a batch; if the server becomes unavailable, wait for it, and resend only the unanswered questions.

    A question without a reply may be what ends the server. It is resent alone, and fails if the server ends twice, as
    the server then answers the other questions.

    Raises:
        TransientError: As `InferenceBackend.answer`, or the server stays unavailable.
    """
    replies: dict[int, Reply] = {}
    faults: dict[int, list[ServerUnavailableError]] = defaultdict(list)
    ends, outages = Counter[int](), 0
    waiting = deque([tuple(range(len(batch.questions)))])
    while waiting:
        indexes = waiting.popleft()
        is_alone = indexes[0] in faults
        asked = replace(batch.only(tuple(batch.questions[index] for index in indexes)), is_alone=is_alone)
        try:
            received = dict(enumerate(backend.answer(asked)))
        except ServerUnavailableError as error:
            retry_outage(backend.wait_ready)
            received = dict(error.replies)
            for at, found in error.faults.items():
                faults[indexes[at]] += found
            ends[indexes[0]] += is_alone and bool(error.faults)
            if ends[indexes[0]] == _ENDS_PER_QUESTION:
                received = {0: Rejected.of(ServerFailedError.after(faults[indexes[0]]))}
            outages = 0 if received else outages + 1
            if outages > _MAX_OUTAGES:
                raise
        replies |= {indexes[at]: reply for at, reply in received.items()}
        rest = [index for index in indexes if index not in replies]
        if together := tuple(index for index in rest if index not in faults):
            waiting.appendleft(together)
        waiting.extend((index,) for index in rest if index in faults)
    return [replies[index] for index in range(len(batch.questions))]
