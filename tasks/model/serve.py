"""The engine's process at work: batches come in, workers render them, the engine answers without a pause."""

from __future__ import annotations

import pickle
import threading
import time
from functools import partial
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from infra.errors import JobError
from tasks.model.questions import EngineTimes, Refusal, Replies, Ticket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future
    from multiprocessing.connection import Connection

    from tasks.model.engine import Engine
    from tasks.model.inputs import EngineReady
    from tasks.model.questions import Batch, Question, Reply

    VideoQuestions = tuple[bytes, list[Question]]  # a frame file, and what is asked about it
    _Render = Callable[[list[VideoQuestions]], Future[list[bytes]]]
    _Rendered = tuple[list[Ticket], list[EngineReady | Refusal]]

# To reach a worker and come back takes about as long as laying out a small video: such go together.
_TOGETHER_BYTES = 512 * 1024


class _Video(NamedTuple):
    """A frame file, and the questions about it."""

    tickets: list[Ticket]
    frame_file: bytes
    questions: list[Question]


def serve(connection: Connection, engine: Engine, render: _Render) -> None:
    """Say that the engine is ready, and answer batches until the connection closes.

    Args:
        connection: To the parent.
        engine: Loaded, and idle.
        render: Has the questions on several videos rendered in another process; see `tasks.model.inputs`.

    Raises:
        Exception: Whatever broke the engine or a worker; neither can be trusted after it.
    """
    reception = _Reception(connection, render)
    reception.start()  # before anybody knows: a thread that finds no memory to start with would be waited for in vain
    connection.send(engine.describe())
    while True:
        waited_ms = 0.0
        if engine.is_idle:
            waited_ms = reception.wait()
        began = time.perf_counter()
        try:
            replies = [reply for rendered in reception.take() for reply in _feed(engine, *rendered)]
        except EOFError:
            return
        if not engine.is_idle:
            replies += engine.step()
        busy_ms = (time.perf_counter() - began) * 1e3
        connection.send(Replies(replies=replies, times=EngineTimes(busy_ms=busy_ms, waited_ms=waited_ms)))


class _Reception(threading.Thread):
    """Receives batches and has them rendered, whatever the engine is at."""

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
                for videos in _together(_videos(number, batch)):
                    self._received += len(videos)
                    rendering = self._render([(video.frame_file, video.questions) for video in videos])
                    rendering.add_done_callback(partial(self._put, videos))
        except BaseException as error:  # noqa: BLE001 - for the engine's thread to raise
            self._inbox.put(error)

    def _put(self, videos: list[_Video], rendering: Future[list[bytes]]) -> None:
        try:
            for video, rendered in zip(videos, rendering.result(), strict=True):
                # Unpickled here, off the engine's thread.
                self._inbox.put((video.tickets, pickle.loads(rendered)))  # noqa: S301 - from our own worker
        except BaseException as error:  # noqa: BLE001 - for the engine's thread to raise; here it would be lost
            self._inbox.put(error)

    def wait(self) -> float:
        """Wait until something can be taken; gives the milliseconds in which something was being rendered."""
        began, was_rendering = time.perf_counter(), self._received > self._taken
        self._next = self._inbox.get()
        return (time.perf_counter() - began) * 1e3 if was_rendering else 0.0

    def take(self) -> list[_Rendered]:
        """Take what is ready, by video.

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


def _videos(number: int, batch: Batch) -> Iterator[_Video]:
    """Take a batch apart."""
    for video_id, group in groupby(enumerate(batch.questions), key=lambda each: each[1].video_id):
        places, questions = zip(*group, strict=True)
        tickets = [Ticket(batch=number, place=place) for place in places]
        yield _Video(tickets, batch.frame_files[video_id], list(questions))


def _together(videos: Iterable[_Video]) -> Iterator[list[_Video]]:
    """Put small videos together, in their order; a large one stays alone."""
    some: list[_Video] = []
    room_bytes = _TOGETHER_BYTES
    for video in videos:
        room_bytes -= len(video.frame_file)
        if some and room_bytes < 0:
            yield some
            some, room_bytes = [], _TOGETHER_BYTES - len(video.frame_file)
        some.append(video)
    if some:
        yield some


def _feed(
    engine: Engine,
    tickets: list[Ticket],
    questions: list[EngineReady | Refusal],
) -> list[tuple[Ticket, Reply]]:
    """Hand a video's questions to the engine; gives those that it refuses."""
    refused: list[tuple[Ticket, Reply]] = []
    for ticket, question in zip(tickets, questions, strict=True):
        if isinstance(question, Refusal):
            refused.append((ticket, question))
            continue
        try:
            engine.feed(ticket, question)
        except JobError as error:
            refused.append((ticket, Refusal.of(error)))
    return refused
