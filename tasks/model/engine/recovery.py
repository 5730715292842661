"""Restart an engine that dies, and find the question that kills it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from infra.errors import EngineLostError, InferenceError
from tasks.domain import Answer
from tasks.model.probe_video import probe_video
from tasks.model.protocol import Batch, Lifetime, Question, QuestionFailure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tasks.model.engine.process import EngineProcess
    from tasks.model.protocol import EngineInfo, EngineTimes, Reply

_DEATHS_PER_QUESTION = 2  # of a question asked alone, after which it fails
_DEATHS_PER_VIDEO = 2  # jobs on one video that killed the engine, after which the rest on it fail unasked
_SPARE_DEATHS = 2
_MAX_PROBES = 4  # failures in a row for which a probe video may be the only evidence that the engine works
_PROBE = Question(video_id="grey", text="A or B?", system_prompt=None, choices=("A", "B"), scoring="letter")


class RecoveringEngine(Lifetime):
    """Answers batches even if its engine dies; a context manager that shuts it down.

    A lost engine takes every batch in flight with it, and one of them may be the cause. So each of them is
    asked again, alone. A batch that kills the engine again is bisected; see `_Bisection`.
    """

    def __init__(self, engine: EngineProcess) -> None:
        """Store the engine; nothing is started yet."""
        self._engine = engine
        self._turn = threading.Condition()
        self._active = 0
        self._suspects = 0
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
        try:
            with self._shared():
                replies = self._engine.answer(batch)
        except EngineLostError:
            pass
        else:
            self._known_good = self._known_good or _first_answered_question(batch, replies)
            return replies
        with self._exclusive():
            return _Bisection(self._engine, batch, self._known_good).replies()

    @contextmanager
    def _shared(self) -> Iterator[None]:
        with self._turn:
            self._turn.wait_for(lambda: not self._suspects)
            self._active += 1
        try:
            yield
        finally:
            with self._turn:
                self._active -= 1
                self._turn.notify_all()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        with self._turn:
            self._suspects += 1
            self._turn.wait_for(lambda: not self._active)
            self._active += 1
        try:
            yield
        finally:
            with self._turn:
                self._suspects -= 1
                self._active -= 1
                self._turn.notify_all()


class _Bisection:
    """Finds the questions of a batch that kill the engine, and has the engine answer the others.

    The batch is halved until such a question is asked alone. If that kills the engine twice, and the engine
    still answers a question that it answered before, or one on a probe video, the question fails. Its other
    orders then fail unasked; so do, after a second job on the same video, the remaining questions on that video:
    each would cost two more restarts.
    """

    def __init__(self, engine: EngineProcess, batch: Batch, known_good: Batch | None) -> None:
        """Store the batch; nothing is asked yet.

        Args:
            engine: May have died.
            batch: Questions, each followed by its other orders.
            known_good: A question that the engine has answered before, if any.
        """
        self._engine = engine
        self._batch = batch
        self._known_good = known_good
        self._jobs = _jobs_of(batch.questions)
        self._died_on: dict[str, set[int]] = {}
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
        places = [place for place in places if not self._is_failed_early(place)]
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
            self._fail(places[0], f"The engine died twice on this question. {lost.message}")
            job, video_id = self._jobs[places[0]], self._batch.questions[places[0]].video_id
            self._died_on.setdefault(video_id, set()).add(job)
            return
        middle = len(places) // 2
        self._ask(places[:middle])
        self._ask(places[middle:])

    def _is_failed_early(self, place: int) -> bool:
        """Fail a question that is no longer worth asking; return whether it has failed."""
        died_on = self._died_on.get(self._batch.questions[place].video_id, set())
        if self._jobs[place] in died_on:
            self._fail(place, "The engine died twice on this question with its choices in another order.")
        elif len(died_on) >= _DEATHS_PER_VIDEO:
            self._fail(place, f"Not asked: the engine died on {len(died_on)} other questions about this video.")
        return place in self._replies

    def _fail(self, place: int, message: str) -> None:
        self._replies[place] = QuestionFailure.of(InferenceError(message))

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


def _jobs_of(questions: Sequence[Question]) -> list[int]:
    """Number the jobs of questions, each of which is followed by its other orders."""
    jobs: list[int] = []
    orders_left = 0
    for question in questions:
        jobs.append(jobs[-1] if orders_left else len(jobs))
        orders_left = orders_left - 1 if orders_left else len(question.others)
    return jobs
