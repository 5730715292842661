"""What a shard is answered with, what came of it so far, and batches that outlast outages of a server."""

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

_MAX_CRASHES = 2  # of the server while it answers one question alone, after which the question fails
_MAX_OUTAGES = 5  # in a row, without a reply
_MIN_LABELS = 8  # to judge by: fewer may just be odd questions


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerContext:
    """What jobs are answered with: the model, the frames and the limits.

    Attributes:
        batch_bytes: Maximum frame bytes in one group of a shard.
        extractor: Reads the frame files, and extracts the dense views of escalated jobs.
        escalate_below: Margin below which jobs are escalated; None escalates none.
    """

    spec: RunSpec
    backend: InferenceBackend
    batch_bytes: int
    extractor: FrameExtractor
    escalate_below: float | None = None
    profile: WallClockProfile = field(default_factory=WallClockProfile)

    def answered_chunks(self, cut: CutShard) -> Mapping[str, JobResult]:  # noqa: ARG002 - for runs
        """Return the answers of earlier runs to the chunks of a shard, by chunk id; none outside a run."""
        return {}

    def ask(self, batch: Batch) -> list[Reply]:
        """Answer a batch like `InferenceBackend.answer`; only runs wait for an unavailable server."""
        return self.backend.answer(batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceContext(AnswerContext):
    """The context of a run, which also writes rows.

    Attributes:
        writer: Writes the results of shards.
        gpus: GPUs that the engine holds.
        min_choice_mass: Total probability of all choices, as the median over a shard, below which its labels are noise.
    """

    writer: ShardWriter
    gpus: int = 0
    min_choice_mass: float = 0.0

    def check_meaning(self, results: Sequence[JobResult]) -> None:
        """Check that the model gives the choices of a shard a noticeable probability; a few odd questions end no run.

        Raises:
            ConfigurationError: It does not, for most jobs.
        """
        masses = [each.answer.choice_mass for each in results if each.answer.choice_mass is not None]
        if len(masses) < _MIN_LABELS or (median := statistics.median(masses)) >= self.min_choice_mass:
            return
        raise ConfigurationError(
            f"The model means none of the choices: together they have a probability of {median:.1g}, by the median of "
            f"{pluralize(len(masses), 'job')}, so labels would be noise. If it thinks before it answers, turn that off "
            "by model.chat_template_args, such as enable_thinking = false; otherwise try choice_scoring text or another"
            " template. To have the labels all the same, set model.min_choice_mass to 0."
        )

    def answered_chunks(self, cut: CutShard) -> Mapping[str, JobResult]:
        """Read the answers of earlier runs that are still valid for the chunks of a shard, by chunk id."""
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
        arrived: Number of views read from the shard's stream, whose videos are in `videos`.
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

    A question without a reply may have crashed the server. It is resent alone, and fails if the server then crashes
    twice, since the server answers the other questions.

    Raises:
        TransientError: As `InferenceBackend.answer`, or the server stays unavailable.
    """
    replies: dict[int, Reply] = {}
    faults: dict[int, list[ServerUnavailableError]] = defaultdict(list)
    crashes, outages = Counter[int](), 0
    waiting = deque([tuple(range(len(batch.questions)))])
    while waiting:
        indexes = waiting.popleft()
        is_alone = indexes[0] in faults
        request = replace(batch.only(tuple(batch.questions[index] for index in indexes)), is_alone=is_alone)
        try:
            received = dict(enumerate(backend.answer(request)))
        except ServerUnavailableError as error:
            retry_outage(backend.wait_ready)
            received = dict(error.replies)
            for at, found in error.faults.items():
                faults[indexes[at]] += found
            crashes[indexes[0]] += is_alone and bool(error.faults)
            if crashes[indexes[0]] == _MAX_CRASHES:
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
