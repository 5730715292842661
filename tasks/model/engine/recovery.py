"""Restart an engine that dies, and find the question that kills it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from infra.errors import EngineLostError
from reelabel_engine.errors import InferenceError
from reelabel_engine.protocol import Batch, Question, QuestionFailure
from tasks.domain import Answer
from tasks.model.lifetime import Lifetime
from tasks.model.probe_video import probe_video
from tasks.model.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reelabel_engine.protocol import EngineInfo, EngineTimes, ShownFile
    from tasks.model.backend import Reply
    from tasks.model.engine.process import EngineProcess

_DEATHS_PER_QUESTION = 2  # of a question asked alone, after which it fails
_DEATHS_PER_VIDEO = 2  # jobs on one video that killed the engine, after which the rest on it fail unasked
_SPARE_DEATHS = 2
_MAX_PROBES = 4  # failures in a row for which a probe video may be the only evidence that the engine works
_PROBE = Question(video_id="grey", text="A or B?", system_prompt=None, choices=("A", "B"), scoring="letter")


class FatalQuestions:
    """The questions that killed an engine, by video: known to all engines of a run, for all shards of a video."""

    def __init__(self) -> None:
        """Start with none."""
        self._by_frames: dict[tuple[tuple[ShownFile, ...], int], set[Question]] = defaultdict(set)

    def add(self, batch: Batch, job: Question) -> None:
        """Record that a question of a batch, with the choices in their first order, killed the engine twice."""
        self._by_frames[_frames_key(batch, job)].add(job)

    def refusals(self, batch: Batch, jobs: Sequence[Question], places: Iterable[int]) -> dict[int, Reply]:
        """Return the failures of the questions at some places that are no longer worth asking, by place.

        `jobs` has the job of each question, as for `add`; a question is followed by its other orders.
        """
        if not self._by_frames:
            return {}
        messages = ((place, self._why_not(batch, place, jobs[place])) for place in places)
        return {place: _failure(message) for place, message in messages if message}

    def _why_not(self, batch: Batch, place: int, job: Question) -> str:
        fatal = self._by_frames.get(_frames_key(batch, job), set())
        if job in fatal:
            other_order = "" if batch.questions[place] is job else " with its choices in another order"
            return f"The engine died twice on this question{other_order}."
        if len(fatal) >= _DEATHS_PER_VIDEO:
            return f"Not asked: the engine died on {len(fatal)} other questions about this video."
        return ""


def _frames_key(batch: Batch, job: Question) -> tuple[tuple[ShownFile, ...], int]:
    """Identify frames, since another run may show others of the same video; Python hashes bytes only once."""
    return job.shown, hash(tuple(batch.frame_files[each.file_id] for each in job.shown))


class RecoveringEngine(Lifetime):
    """Answers batches even if its engine dies; a context manager that shuts it down.

    A lost engine takes every batch in flight with it, and one of them may be the cause. So each of them is
    asked again, alone. A batch that kills the engine again is bisected; see `_Bisection`.
    """

    def __init__(self, engine: EngineProcess, *, fatal: FatalQuestions | None = None) -> None:
        """Store the engine; nothing is started yet.

        Args:
            engine: The engine.
            fatal: Shared by the engines of a fleet.
        """
        self._engine = engine
        self._fatal = fatal or FatalQuestions()
        self._turns = Turns()
        self._known_good: Batch | None = None

    @property
    def engines(self) -> int:
        """Number of engines: one."""
        return 1

    @property
    def times(self) -> EngineTimes:
        """How the engine spent its time, over all its restarts."""
        return self._engine.times

    def start(self) -> None:
        """Start loading the model."""
        self._engine.start()

    def wait_ready(self) -> EngineInfo:
        """Wait until the model is loaded; see `EngineProcess`."""
        return self._engine.wait_ready()

    def close(self) -> None:
        """End the process, for good."""
        self._engine.close()

    def answer(self, batch: Batch) -> list[Reply]:
        """Answer a batch; replies are in the order of its questions. Thread-safe.

        Raises:
            EngineLostError: The engine died so often that the questions cannot be the cause.
            EngineClosedError: The engine was closed meanwhile.
            ModelError: The engine cannot be restarted.
        """
        refused = self._fatal.refusals(batch, _jobs_of(batch.questions), range(len(batch.questions)))
        if len(refused) == len(batch.questions):
            return [*refused.values()]
        if not refused:
            try:
                with self._turns.shared():
                    replies = self._engine.answer(batch)
            except EngineLostError:
                pass
            else:
                self._known_good = self._known_good or _first_answered_question(batch, replies)
                return replies
        with self._turns.alone():
            return _Bisection(self._engine, batch, self._known_good, self._fatal).replies()


class _Bisection:
    """Finds the questions of a batch that kill the engine, and has the engine answer the others.

    The batch is halved until such a question is asked alone. If that kills the engine twice, and the engine
    still answers a question that it answered before, or one on a probe video, the question fails. Its other
    orders then fail unasked; so do, after a second job on the same video, the remaining questions on that video:
    each would cost two more restarts.
    """

    def __init__(self, engine: EngineProcess, batch: Batch, known_good: Batch | None, fatal: FatalQuestions) -> None:
        """Store the batch; nothing is asked yet.

        Args:
            engine: May have died.
            batch: Questions, each followed by its other orders.
            known_good: A question that the engine has answered before, if any.
            fatal: Questions that killed an engine; more are added.
        """
        self._engine = engine
        self._batch = batch
        self._known_good = known_good
        self._fatal = fatal
        self._jobs = _jobs_of(batch.questions)
        self._replies: dict[int, Reply] = {}
        # Deaths in a row: one per halving, then those of a question asked alone.
        self._deaths_allowed = len(batch.questions).bit_length() + _DEATHS_PER_QUESTION + _SPARE_DEATHS
        self._deaths = 0
        self._probes = 0

    def replies(self) -> list[Reply]:
        """Answer or fail each question, in the order of the batch.

        Raises:
            EngineLostError: The engine dies repeatedly without answering anything in between.
        """
        self._ask(range(len(self._batch.questions)))
        return [self._replies[place] for place in sorted(self._replies)]

    def _ask(self, places: Sequence[int]) -> None:
        refused = self._fatal.refusals(self._batch, self._jobs, places)
        self._replies |= refused
        places = [place for place in places if place not in refused]
        if not places:
            return
        asked = self._batch.only(tuple(self._batch.questions[place] for place in places))
        for _ in range(_DEATHS_PER_QUESTION if len(places) == 1 else 1):
            try:
                answers = self._try(asked)
            except EngineLostError as error:
                lost = error
                self._note_death(error)
            else:
                self._replies |= zip(places, answers, strict=True)
                self._known_good = self._known_good or _first_answered_question(asked, answers)
                return
        if len(places) == 1:
            self._check_engine(lost)
            self._replies[places[0]] = _failure(f"The engine died twice on this question. {lost.message}")
            self._fatal.add(self._batch, self._jobs[places[0]])
            return
        middle = len(places) // 2
        self._ask(places[:middle])
        self._ask(places[middle:])

    def _check_engine(self, lost: EngineLostError) -> None:
        """Ask something that the engine must be able to answer; if it cannot, the question is not the cause."""
        if self._known_good is None:
            # It may survive small frames, and die on every frame of normal size.
            self._probes += 1
            if self._probes > _MAX_PROBES:
                raise lost
        known = self._known_good or Batch(frame_files={_PROBE.video_id: probe_video()}, questions=(_PROBE,))
        while True:
            try:
                self._try(known)
            except EngineLostError as error:
                self._note_death(error)
            else:
                return

    def _try(self, batch: Batch) -> list[Reply]:
        self._engine.start()
        replies = self._engine.answer(batch)
        if _first_answered_question(batch, replies):  # a rejected question may never have reached the model
            self._deaths = 0
        return replies

    def _note_death(self, error: EngineLostError) -> None:
        self._deaths += 1
        if self._deaths >= self._deaths_allowed:
            raise error


def _first_answered_question(batch: Batch, replies: Sequence[Reply]) -> Batch | None:
    """Return a batch of the first question that the model answered; None without one."""
    answered = (each for each, reply in zip(batch.questions, replies, strict=True) if isinstance(reply, Answer))
    question = next(answered, None)
    return batch.only((question,)) if question else None


def _failure(message: str) -> QuestionFailure:
    return QuestionFailure.of(InferenceError(message))


def _jobs_of(questions: Sequence[Question]) -> list[Question]:
    """Return the first order of each question; in a batch, its other orders follow it."""
    jobs: list[Question] = []
    orders_left = 0
    for question in questions:
        jobs.append(jobs[-1] if orders_left else question)
        orders_left = orders_left - 1 if orders_left else len(question.others)
    return jobs
