"""The loop of the engine's process: receive batches, have workers render them, keep the engine busy."""

from __future__ import annotations

import pickle
import threading
import time
from functools import partial
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from reelabel.errors import JobError
from tasks.model.protocol import EngineTimes, QuestionFailure, QuestionRef, StepReplies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future
    from multiprocessing.connection import Connection

    from tasks.model.engine.engine import Engine
    from tasks.model.engine.renderer import EngineRequest
    from tasks.model.protocol import Batch, Question, Reply

    VideoQuestions = tuple[tuple[bytes, ...], list[Question]]  # frame files, and what is asked about them together
    _Render = Callable[[list[VideoQuestions]], Future[list[bytes]]]
    _Rendered = tuple[list[QuestionRef], list[EngineRequest | QuestionFailure]]

# A round trip to a worker takes about as long as rendering a small video, so small videos share one.
_GROUP_BYTES = 512 * 1024


class _Video(NamedTuple):
    """A frame file, or several that are shown together, and the questions about it."""

    tickets: list[QuestionRef]
    frame_files: tuple[bytes, ...]
    questions: list[Question]


def serve(connection: Connection, engine: Engine, render: _Render) -> None:
    """Report that the engine is ready, and answer batches until the connection closes.

    Args:
        connection: To the parent.
        engine: Loaded, and idle.
        render: Has the questions on several videos rendered in another process; see `tasks.model.engine.renderer`.

    Raises:
        Exception: Whatever broke the engine or a worker; neither can be trusted afterwards.
    """
    receiver = _Receiver(connection, render)
    receiver.start()  # before reporting readiness: if the thread cannot start, the parent must not wait for it
    connection.send(engine.describe())
    while True:
        starved_ms = 0.0
        if engine.is_idle:
            starved_ms = receiver.wait()
        started = time.perf_counter()
        try:
            replies = [reply for rendered in receiver.take() for reply in _feed(engine, *rendered)]
        except EOFError:
            return
        if not engine.is_idle:
            replies += engine.step()
        busy_ms = (time.perf_counter() - started) * 1e3
        connection.send(StepReplies(replies=replies, times=EngineTimes(busy_ms=busy_ms, starved_ms=starved_ms)))


class _Receiver(threading.Thread):
    """Receives batches and has them rendered, independently of the engine."""

    def __init__(self, connection: Connection, render: _Render) -> None:
        super().__init__(daemon=True)
        self._connection = connection
        self._render = render
        self._inbox: SimpleQueue[_Rendered | BaseException] = SimpleQueue()
        self._next: _Rendered | BaseException | None = None
        self._received = self._taken = 0  # videos; each counted by one thread

    def run(self) -> None:
        try:
            while True:
                number, batch = self._connection.recv()
                for videos in _group(_split(number, batch)):
                    self._received += len(videos)
                    rendering = self._render([(video.frame_files, video.questions) for video in videos])
                    rendering.add_done_callback(partial(self._collect, videos))
        except BaseException as error:  # noqa: BLE001 - for the engine's thread to raise
            self._inbox.put(error)

    def _collect(self, videos: list[_Video], rendering: Future[list[bytes]]) -> None:
        try:
            for video, rendered in zip(videos, rendering.result(), strict=True):
                # Unpickled here, off the engine's thread.
                self._inbox.put((video.tickets, pickle.loads(rendered)))  # noqa: S301 - from our own worker
        except BaseException as error:  # noqa: BLE001 - for the engine's thread to raise; here it would be lost
            self._inbox.put(error)

    def wait(self) -> float:
        """Wait until an input is ready; return the milliseconds waited, or 0 if nothing was being rendered."""
        started, was_rendering = time.perf_counter(), self._received > self._taken
        self._next = self._inbox.get()
        return (time.perf_counter() - started) * 1e3 if was_rendering else 0.0

    def take(self) -> list[_Rendered]:
        """Take the inputs that are ready, by video.

        Raises:
            EOFError: The connection is closed.
            Exception: A worker broke.
        """
        ready: list[_Rendered] = []
        item = self._next
        self._next = None
        while True:
            if isinstance(item, BaseException):
                raise item
            if item is not None:
                self._taken += 1
                ready.append(item)
            try:
                item = self._inbox.get_nowait()
            except Empty:
                return ready


def _split(number: int, batch: Batch) -> Iterator[_Video]:
    """Split a batch by what its questions show."""
    for shown, group in groupby(enumerate(batch.questions), key=lambda each: each[1].shown):
        places, questions = zip(*group, strict=True)
        tickets = [QuestionRef(batch=number, place=place) for place in places]
        yield _Video(tickets, tuple(batch.frame_files[each.file_id] for each in shown), list(questions))


def _group(videos: Iterable[_Video]) -> Iterator[list[_Video]]:
    """Group consecutive small videos; a large one forms a group of its own."""
    group: list[_Video] = []
    room_bytes = _GROUP_BYTES
    for video in videos:
        size_bytes = sum(map(len, video.frame_files))
        room_bytes -= size_bytes
        if group and room_bytes < 0:
            yield group
            group, room_bytes = [], _GROUP_BYTES - size_bytes
        group.append(video)
    if group:
        yield group


def _feed(
    engine: Engine,
    tickets: list[QuestionRef],
    questions: list[EngineRequest | QuestionFailure],
) -> list[tuple[QuestionRef, Reply]]:
    """Feed a video's questions to the engine; return those that it rejects."""
    refused: list[tuple[QuestionRef, Reply]] = []
    for ticket, question in zip(tickets, questions, strict=True):
        if isinstance(question, QuestionFailure):
            refused.append((ticket, question))
            continue
        try:
            engine.feed(ticket, question)
        except JobError as error:
            refused.append((ticket, QuestionFailure.of(error)))
    return refused
