"""An engine that is asked again when it breaks, and the question that breaks it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from infra.errors import EngineLostError, InferenceError
from tasks.domain import Answer
from tasks.model.grey import grey_video
from tasks.model.lifetime import Lifetime
from tasks.model.questions import Batch, Question, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tasks.model.process import EngineProcess
    from tasks.model.questions import EngineInfo, EngineTimes, Reply

_DEATHS_OF_ONE = 2  # until a question that stands by itself is refused
_DEATHS_OF_A_VIDEO = 2  # jobs on which the engine died until the others about their video are not asked
_SPARE_DEATHS = 2
_GREY_VIDEOS = 4  # of as many refusals in a row a grey video may be the only sign of life
_GREY = Question(video_id="grey", text="A or B?", system_prompt=None, choices=("A", "B"), scoring="letter")


class RecoveringEngine(Lifetime):
    """Answers, whatever becomes of its engine; a context manager that ends it.

    An engine that is lost takes every batch with it that it was at, and one of them may be the cause. So
    they are asked again one by one, each alone. One that the engine dies on even so is tried; see `_Trial`.
    """

    def __init__(self, engine: EngineProcess) -> None:
        """Keep the engine; nothing is started yet."""
        self._engine = engine
        self._turn = threading.Condition()
        self._asking = 0
        self._suspects = 0
        self._answered: Batch | None = None

    @property
    def engines(self) -> int:
        """One."""
        return 1

    @property
    def times(self) -> EngineTimes:
        """What it did with its time, in all its lives."""
        return self._engine.times

    def start(self) -> None:
        """Begin to load the model."""
        self._engine.start()

    def wait_ready(self) -> EngineInfo:
        """Wait until the model is loaded; see `EngineProcess`."""
        return self._engine.wait_ready()

    def close(self) -> None:
        """End the process, for good."""
        self._engine.close()

    def ask(self, batch: Batch) -> list[Reply]:
        """Answer a batch, in its order; safe to call from many threads.

        Raises:
            EngineLostError: The engine dies so often that the questions cannot be the cause.
            EngineClosedError: It was closed meanwhile.
            ModelError: It does not start again.
        """
        try:
            with self._beside_others():
                replies = self._engine.ask(batch)
        except EngineLostError:
            pass
        else:
            self._answered = self._answered or _first_answered(batch, replies)
            return replies
        with self._alone():
            return _Trial(self._engine, batch, self._answered).replies()

    @contextmanager
    def _beside_others(self) -> Iterator[None]:
        with self._turn:
            self._turn.wait_for(lambda: not self._suspects)
            self._asking += 1
        try:
            yield
        finally:
            with self._turn:
                self._asking -= 1
                self._turn.notify_all()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._turn:
            self._suspects += 1
            self._turn.wait_for(lambda: not self._asking)
            self._asking += 1
        try:
            yield
        finally:
            with self._turn:
                self._suspects -= 1
                self._asking -= 1
                self._turn.notify_all()


class _Trial:
    """Finds the questions of a batch on which the engine dies, and has it answer the others.

    The batch is halved until such a question stands by itself; dies the engine once more, that question is
    refused, if the engine still answers what it has answered before, or about a grey video. Its other orders are
    not asked then, nor, after a second job about the same video, the rest of those about that video: each would
    cost two more engines.
    """

    def __init__(self, engine: EngineProcess, batch: Batch, answered: Batch | None) -> None:
        """Keep what is asked.

        Args:
            engine: May have died.
            batch: Questions, each followed by its other orders.
            answered: What the engine answered before, if anything.
        """
        self._engine = engine
        self._batch = batch
        self._answered = answered
        self._jobs = _jobs_of(batch.questions)
        self._died_on: dict[str, set[int]] = {}
        self._replies: dict[int, Reply] = {}
        # Halving needs as many deaths in a row as the number has digits, and whoever stands alone two.
        self._deaths_allowed = len(batch.questions).bit_length() + _DEATHS_OF_ONE + _SPARE_DEATHS
        self._deaths = 0
        self._grey_videos = 0

    def replies(self) -> list[Reply]:
        """Answer or refuse each question, in their order.

        Raises:
            EngineLostError: The engine dies again and again, and answers nothing in between.
        """
        self._ask(range(len(self._batch.questions)))
        return [self._replies[place] for place in sorted(self._replies)]

    def _ask(self, places: Sequence[int]) -> None:
        places = [place for place in places if not self._is_condemned(place)]
        if not places:
            return
        asked = self._batch.only(tuple(self._batch.questions[place] for place in places))
        for _ in range(_DEATHS_OF_ONE if len(places) == 1 else 1):
            try:
                answers = self._answers_to(asked)
            except EngineLostError as error:
                lost = error
                self._note_death(error)
            else:
                self._replies |= zip(places, answers, strict=True)
                self._answered = self._answered or _first_answered(asked, answers)
                return
        if len(places) == 1:
            self._check_engine(lost)
            self._refuse(places[0], f"The engine died on this question twice. {lost.message}")
            job, video_id = self._jobs[places[0]], self._batch.questions[places[0]].video_id
            self._died_on.setdefault(video_id, set()).add(job)
            return
        middle = len(places) // 2
        self._ask(places[:middle])
        self._ask(places[middle:])

    def _is_condemned(self, place: int) -> bool:
        """Refuse a question that need not be asked any more."""
        died_on = self._died_on.get(self._batch.questions[place].video_id, set())
        if self._jobs[place] in died_on:
            self._refuse(place, "The engine died twice on this question with its choices in another order.")
        elif len(died_on) >= _DEATHS_OF_A_VIDEO:
            self._refuse(place, f"The engine died on {len(died_on)} other questions about this video; not asked.")
        return place in self._replies

    def _refuse(self, place: int, message: str) -> None:
        self._replies[place] = Refusal.of(InferenceError(message))

    def _check_engine(self, lost: EngineLostError) -> None:
        """Have it answer what it answered before: an engine that cannot dies of something else than the question."""
        if self._answered is None:
            # It may live on small frames, and die on all that have a video's size.
            self._grey_videos += 1
            if self._grey_videos > _GREY_VIDEOS:
                raise lost
        known = self._answered or Batch(frame_files={_GREY.video_id: grey_video()}, questions=(_GREY,))
        while True:
            try:
                self._answers_to(known)
            except EngineLostError as error:
                self._note_death(error)
            else:
                return

    def _answers_to(self, batch: Batch) -> list[Reply]:
        self._engine.start()
        replies = self._engine.ask(batch)
        if _first_answered(batch, replies):  # what is refused may never have come to the model
            self._deaths = 0
        return replies

    def _note_death(self, error: EngineLostError) -> None:
        self._deaths += 1
        if self._deaths >= self._deaths_allowed:
            raise error


def _first_answered(batch: Batch, replies: Sequence[Reply]) -> Batch | None:
    """Take the first question that the model has answered."""
    answered = (each for each, reply in zip(batch.questions, replies, strict=True) if isinstance(reply, Answer))
    question = next(answered, None)
    return batch.only((question,)) if question else None


def _jobs_of(questions: Sequence[Question]) -> list[int]:
    """Number the jobs behind questions: one that has other orders is followed by them."""
    jobs: list[int] = []
    orders_left = 0
    for question in questions:
        jobs.append(jobs[-1] if orders_left else len(jobs))
        orders_left = orders_left - 1 if orders_left else len(question.others)
    return jobs
