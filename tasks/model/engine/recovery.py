"""Restarts an engine that crashes, and finds the question that crashes it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from infra.errors import EngineLostError
from reelabel_engine.errors import InferenceError
from reelabel_engine.protocol import Batch, EngineInfo, EngineTimes, Question, QuestionMedium, Rejected
from tasks.domain import Answer
from tasks.model.backend import InferenceBackend, Reply
from tasks.model.probe_video import probe_video
from tasks.model.shared_lock import SharedLock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.model.engine.process import EngineProcess

_CRASHES_PER_QUESTION = 2  # of a question asked alone, after which it fails
_CRASHES_PER_VIDEO = 2  # questions on the same frames that crash the engine, after which the others fail unasked
_CRASHES_IN_A_ROW = 6  # without an answer in between, after which the engine is to blame
_PROBE = Question(video_id="grey", text="A or B?", system_prompt=None, choices=("A", "B"), scoring="letter")


class CrashingQuestions:
    """The questions that crashed an engine, by their frames; shared by the engines of a run."""

    def __init__(self) -> None:
        self._by_frames: dict[tuple[tuple[QuestionMedium, ...], int], set[Question]] = defaultdict(set)

    def add(self, batch: Batch, job: Question) -> None:
        self._by_frames[_frames_key(batch, job)].add(job)

    def reject(self, batch: Batch, question: Question, job: Question) -> Rejected | None:
        """Return the failure of a question that must not be asked again; None for any other."""
        crashing = self._by_frames.get(_frames_key(batch, job), ()) if self._by_frames else ()
        if job in crashing:
            other_order = "" if question is job else " with its choices in another order"
            return _failure(f"This question{other_order} crashed the engine twice.")
        if len(crashing) >= _CRASHES_PER_VIDEO:
            return _failure(f"Skipped: {len(crashing)} other questions about this video crashed the engine.")
        return None


def _frames_key(batch: Batch, job: Question) -> tuple[tuple[QuestionMedium, ...], int]:
    """Identify the frames shown: another run may show others of the same video. Python hashes bytes only once."""
    return job.shown, hash(tuple(batch.frame_files[each.file_id] for each in job.shown))


class RecoveringEngine(InferenceBackend):
    """Answers batches even if its engine crashes; a context manager that shuts it down.

    A crash takes every batch in flight with it, and any of their questions may be the cause. So each of them is then
    asked alone. One that crashes the engine twice fails, if the engine still answers another one.
    """

    def __init__(self, engine: EngineProcess, *, crashing: CrashingQuestions | None = None) -> None:
        self._engine = engine
        self._crashing = crashing or CrashingQuestions()
        self._engine_lock = SharedLock()
        self._known_good: Batch | None = None
        self._crashes = 0

    @property
    def times(self) -> EngineTimes:
        return self._engine.times

    def start(self) -> None:
        self._engine.start()

    def wait_ready(self) -> EngineInfo:
        return self._engine.wait_ready()

    def close(self) -> None:
        self._engine.close()

    def answer(self, batch: Batch) -> list[Reply]:
        pairs = list(zip(batch.questions, _jobs_of(batch.questions), strict=True))
        if not any(self._crashing.reject(batch, question, job) for question, job in pairs):
            try:
                with self._engine_lock.shared():
                    replies = self._engine.answer(batch)
            except EngineLostError:
                pass
            else:
                self._note(batch, replies)
                return replies
        return [self._answer_alone(batch, question, job) for question, job in pairs]

    def _answer_alone(self, batch: Batch, question: Question, job: Question) -> Reply:
        with self._engine_lock.exclusive():
            if rejected := self._crashing.reject(batch, question, job):
                return rejected
            for _ in range(_CRASHES_PER_QUESTION):
                found = self._ask(batch.only((question,)))
                if isinstance(found, list):
                    return found[0]
                crash = found
            other = self._known_good or Batch(frame_files={_PROBE.video_id: probe_video()}, questions=(_PROBE,))
            while isinstance(self._ask(other), EngineLostError):
                pass
            self._crashing.add(batch, job)
            return _failure(f"This question crashed the engine twice. {crash.message}")

    def _ask(self, batch: Batch) -> list[Reply] | EngineLostError:
        """Ask while nothing else is in flight; return the error of a crash, or raise it after too many in a row."""
        try:
            replies = self._engine.answer(batch)
        except EngineLostError as error:
            self._crashes += 1
            if self._crashes >= _CRASHES_IN_A_ROW:
                raise
            return error
        self._note(batch, replies)
        return replies

    def _note(self, batch: Batch, replies: Sequence[Reply]) -> None:
        """Remember a question that the model has answered: it may survive the probe, and crash on every real frame."""
        answered = (each for each, reply in zip(batch.questions, replies, strict=True) if isinstance(reply, Answer))
        question = next(answered, _PROBE)
        if question is not _PROBE:
            self._crashes = 0
            self._known_good = self._known_good or batch.only((question,))


def _failure(message: str) -> Rejected:
    return Rejected.of(InferenceError(message))


def _jobs_of(questions: Sequence[Question]) -> list[Question]:
    jobs: list[Question] = []
    orders_left = 0
    for question in questions:
        jobs.append(jobs[-1] if orders_left else question)
        orders_left = orders_left - 1 if orders_left else len(question.permutations)
    return jobs
