"""The loops of the process: receive requests, have workers render them, keep the engine busy; or embed in order."""

from __future__ import annotations

import pickle
import threading
import time
from functools import partial
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from reelabel.errors import JobError
from reelabel_engine.protocol import (
    AskBatch,
    Batch,
    Cancel,
    EmbedImages,
    EmbedTexts,
    EncoderLoaded,
    EngineLoaded,
    EngineTimes,
    Keep,
    LiveDrop,
    LiveRequest,
    Question,
    QuestionReply,
    Rejected,
    RequestRef,
    StepReplies,
    Vectors,
    receive,
    send,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future
    from multiprocessing.connection import Connection

    from reelabel_engine.encoder import Encoder
    from reelabel_engine.engine import Engine
    from reelabel_engine.live.renderer import PromptEnds, RenderedItem
    from reelabel_engine.renderer import EngineRequest

    _Render = Callable[..., Future[Any]]  # the name of a method of `Worker`, and what it takes

# A round trip to a worker takes about as long as rendering a small video, so small videos share one.
_GROUP_BYTES = 512 * 1024


class _Rendered(NamedTuple):
    refs: list[RequestRef]
    questions: list[EngineRequest | Rejected]


class _RenderedLive(NamedTuple):
    request: LiveRequest
    items: dict[str, RenderedItem | Rejected]
    ends: PromptEnds | Rejected


# Messages as they arrive, and what was rendered for them.
_Arrived: TypeAlias = _Rendered | _RenderedLive | LiveRequest | LiveDrop | Cancel | Keep


class _Video(NamedTuple):
    refs: list[RequestRef]
    frame_files: tuple[bytes, ...]
    questions: list[Question]


def serve(connection: Connection, engine: Engine, render: _Render) -> Keep | None:
    """Report that the engine is ready, and answer batches until the connection closes, or the client leaves.

    Raises:
        Exception: Whatever broke the engine or a worker; neither can be trusted afterwards.
    """
    receiver = _Receiver(connection, render, takes_live=engine.live is not None)
    receiver.start()  # before reporting readiness: if the thread cannot start, the parent must not wait for it
    send(connection, EngineLoaded(info=engine.describe()))
    while True:
        waiting_for_input_ms = 0.0
        if engine.is_idle:
            waiting_for_input_ms = receiver.wait()
        started = time.perf_counter()
        try:
            taken = receiver.take()
        except EOFError:
            return None
        replies = [reply for arrived in taken for reply in _handle(engine, arrived)]
        for keep in (each for each in taken if isinstance(each, Keep)):
            if not engine.is_idle:  # the next client would get the answers
                raise RuntimeError("it still had questions to answer")
            return keep
        if not engine.is_idle:
            replies += engine.step()
        busy_ms = (time.perf_counter() - started) * 1e3
        times = EngineTimes(busy_ms=busy_ms, waiting_for_input_ms=waiting_for_input_ms)
        live = engine.live.replies() if engine.live else ()
        if replies or live or not engine.is_idle:
            send(connection, StepReplies(replies=(*replies, *live), times=times))


def serve_encoder(connection: Connection, encoder: Encoder) -> None:
    """Report that the encoder is ready, and answer requests in order until the connection closes."""
    send(connection, EncoderLoaded(info=encoder.describe()))
    while True:
        try:
            request = receive(connection)
        except EOFError:
            return
        if isinstance(request, EmbedImages):
            vectors = encoder.embed_images(request.videos)
            send(connection, Vectors(number=request.number, vectors=vectors))
        elif isinstance(request, EmbedTexts):
            vectors, tokens = encoder.embed_texts(request.texts), tuple(encoder.count_tokens(request.texts))
            send(connection, Vectors(number=request.number, vectors=vectors, tokens=tokens))
        elif not isinstance(request, Cancel):  # each request is embedded at once
            raise TypeError(f"an encoder takes no {type(request).__name__}")


class _Receiver(threading.Thread):
    def __init__(self, connection: Connection, render: _Render, *, takes_live: bool) -> None:
        super().__init__(daemon=True)
        self._connection = connection
        self._render = render
        self._takes_live = takes_live
        self._inbox: SimpleQueue[_Arrived | BaseException] = SimpleQueue()
        self._next: _Arrived | BaseException | None = None
        self._received = self._taken = 0  # videos; each counted by one thread
        self._rendering: dict[int, int] = {}  # how many parts of a request have not been taken
        self._cancelled: set[int] = set()  # those of them that were cancelled

    def run(self) -> None:
        try:
            while True:
                message = receive(self._connection)
                if isinstance(message, Cancel | Keep):
                    self._inbox.put(message)
                elif isinstance(message, AskBatch):
                    self._receive_batch(message)
                elif isinstance(message, (LiveRequest, LiveDrop)):
                    self._receive_live(message)
                else:
                    raise TypeError(f"an engine takes no {type(message).__name__}")  # noqa: TRY301 - like a fault
        except BaseException as error:  # noqa: BLE001 - for the engine's thread to raise
            self._inbox.put(error)

    def _receive_batch(self, message: AskBatch) -> None:
        split = list(_split(message.number, message.batch))
        self._rendering[message.number] = len(split)
        for videos in _group(split):
            self._received += len(videos)
            rendering = self._render("render", [(video.frame_files, video.questions) for video in videos])
            rendering.add_done_callback(partial(self._collect, videos))

    def _receive_live(self, message: LiveRequest | LiveDrop) -> None:
        if not self._takes_live:
            raise RuntimeError("This engine was not loaded for live sessions.")
        self._inbox.put(message)
        if isinstance(message, LiveRequest):
            self._rendering[message.number] = 1
            self._render("render_live", message).add_done_callback(partial(self._collect_live, message))

    def _collect_live(self, request: LiveRequest, rendering: Future[bytes]) -> None:
        try:
            self._inbox.put(_RenderedLive(request, *pickle.loads(rendering.result())))  # noqa: S301 - from our own worker
        except BaseException as error:  # noqa: BLE001 - for the engine's thread to raise; here it would be lost
            self._inbox.put(error)

    def _collect(self, videos: list[_Video], rendering: Future[list[bytes]]) -> None:
        try:
            for video, rendered in zip(videos, rendering.result(), strict=True):
                # Unpickled here, off the engine's thread.
                self._inbox.put(_Rendered(video.refs, pickle.loads(rendered)))  # noqa: S301 - from our own worker
        except BaseException as error:  # noqa: BLE001 - for the engine's thread to raise; here it would be lost
            self._inbox.put(error)

    def wait(self) -> float:
        """Wait until an input is ready; return the milliseconds waited, or 0 if nothing was being rendered."""
        started, was_rendering = time.perf_counter(), self._received > self._taken
        self._next = self._inbox.get()
        return (time.perf_counter() - started) * 1e3 if was_rendering else 0.0

    def take(self) -> list[_Arrived]:
        """Take the inputs that are ready: questions by video, and live requests.

        Raises:
            EOFError: The connection is closed.
            Exception: A worker broke.
        """
        ready: list[_Arrived] = []
        item = self._next
        self._next = None
        while True:
            if isinstance(item, BaseException):
                raise item
            if item is not None:
                self._taken += isinstance(item, _Rendered)
                ready += self._with_cancel(item)
            try:
                item = self._inbox.get_nowait()
            except Empty:
                return ready

    def _with_cancel(self, item: _Arrived) -> list[_Arrived]:
        """Add a cancellation for a part of a request that was rendered after it was cancelled."""
        if isinstance(item, Cancel) and item.number in self._rendering:
            self._cancelled.add(item.number)
        if not isinstance(item, _Rendered | _RenderedLive):
            return [item]
        number = item.refs[0].number if isinstance(item, _Rendered) else item.request.number
        self._rendering[number] -= 1
        is_cancelled = number in self._cancelled
        if not self._rendering[number]:
            del self._rendering[number]
            self._cancelled.discard(number)
        return [item, Cancel(number=number)] if is_cancelled else [item]


def _split(number: int, batch: Batch) -> Iterator[_Video]:
    for shown, group in groupby(enumerate(batch.questions), key=lambda each: each[1].shown):
        indices, questions = zip(*group, strict=True)
        refs = [RequestRef(number, index) for index in indices]
        yield _Video(refs, tuple(batch.frame_files[each.file_id] for each in shown), list(questions))


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


def _handle(engine: Engine, arrived: _Arrived) -> list[tuple[RequestRef, QuestionReply]]:
    match arrived:
        case _Rendered():
            return _feed(engine, *arrived)
        case Cancel():
            engine.cancel(arrived.number)
        case LiveRequest() if engine.live:
            engine.live.items.expect(arrived.session, arrived.items)
        case LiveDrop() if engine.live:
            engine.live.items.drop(arrived.session, arrived.hashes)
        case _RenderedLive() if engine.live:
            engine.live.receive(*arrived)
    return []


def _feed(
    engine: Engine, refs: list[RequestRef], questions: list[EngineRequest | Rejected]
) -> list[tuple[RequestRef, QuestionReply]]:
    refused: list[tuple[RequestRef, QuestionReply]] = []
    for ref, question in zip(refs, questions, strict=True):
        if isinstance(question, Rejected):
            refused.append((ref, question))
            continue
        try:
            engine.feed(ref, question)
        except JobError as error:
            refused.append((ref, Rejected.of(error)))
    return refused
