"""`/v1/video/chat/stream`: live sessions over a WebSocket."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal

from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from pydantic import BaseModel, ConfigDict, Field

from reelabel.errors import ReelabelError
from tasks.domain.spec import DEFAULT_TEMPLATE
from tasks.live import messages
from tasks.live.frames import FrameReader
from tasks.live.messages import ProtocolError, parse_message
from tasks.live.sessions import Sessions
from tasks.live.setup import LiveSetup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from infra.settings import Settings
    from reelabel.pool.decode_pool import DecodePool
    from tasks.live.model import LiveInfo, LiveModel
    from tasks.live.record.recording import Record
    from tasks.live.session import Session

_LOG = logging.getLogger("reelabel")
PATH = "/v1/video/chat/stream"
# After so long a client that does not read what it is sent counts as lost.
_SEND_S = 30.0
_NORMAL, _LOST, _REFUSED, _FAILED, _RESTARTS, _REPLACED = 1000, 1006, 1008, 1011, 1012, 4001


@contextmanager
def open_sessions(
    settings: Settings,
    *,
    model: LiveModel,
    info: LiveInfo,
    pool: DecodePool,
    open_record: Callable[[str, messages.SessionConfig], Record | None] = lambda _session, _config: None,
) -> Iterator[Sessions]:
    """Yield the sessions of a service, and end them.

    Args:
        settings: With the limits.
        model: What answers.
        info: Its facts.
        pool: Decodes frames.
        open_record: Begins the record of a session.
    """
    live = settings.live
    reader = FrameReader(pool, info, max_frame_px=live.max_seen_pixels)
    setup = LiveSetup(
        model=model,
        info=info,
        reader=reader,
        settings=live,
        template=settings.model.template or DEFAULT_TEMPLATE,
    )
    sessions = Sessions(setup, max_sessions=live.max_sessions, open_record=open_record)
    try:
        yield sessions
    finally:
        sessions.close()


def live_router(sessions: Sessions, *, config_timeout_s: float) -> APIRouter:
    """Make the route.

    Args:
        sessions: The sessions.
        config_timeout_s: Seconds for a connection to begin one.
    """
    router = APIRouter()

    @router.get("/v1/models", summary="List the model that answers live sessions")
    async def models() -> Models:
        return Models(data=[ServedModel(id=sessions.setup.info.model)])

    @router.websocket(PATH)
    async def live(websocket: WebSocket) -> None:
        await websocket.accept()
        # The client may vanish or cease to read at any time; what it has begun waits for it.
        with suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
            try:
                session, last_seq = await _begin(websocket, sessions, timeout_s=config_timeout_s)
            except ProtocolError as refused:
                event = messages.ErrorEvent(code=refused.code, message=refused.message, is_fatal=True)
                await _send(websocket, event.model_dump_json())
                await websocket.close(_REFUSED)
                return
            await _Connection(websocket, session, last_seq).run()

    return router


async def _begin(websocket: WebSocket, sessions: Sessions, *, timeout_s: float) -> tuple[Session, int]:
    """Have the first message begin or resume a session; return the last event that the client has."""
    try:
        async with asyncio.timeout(timeout_s):
            received = await _receive(websocket)
    except TimeoutError:
        raise ProtocolError(f"No session.config arrived within {timeout_s:g} seconds.", code="config_timeout") from None
    message = None if isinstance(received, bytes) else parse_message(received)
    match message:
        case messages.SessionConfig():
            try:
                return await asyncio.to_thread(sessions.open, message), 0
            except ReelabelError as error:
                if isinstance(error, ProtocolError):
                    raise
                raise ProtocolError(error.message, code="unavailable") from None
            except Exception:  # noqa: BLE001 - as of any request
                _LOG.exception("A live session could not be started")
                raise ProtocolError(
                    "The session could not be started; the server's log says why.", code="internal"
                ) from None
        case messages.SessionResume():
            session = sessions.resume(message)
            session.greet(is_resumed=True)
            return session, message.last_seq
        case _:
            sent = "a binary message" if message is None else message.type
            raise ProtocolError(
                f"The first message must be session.config or session.resume, not {sent}.", code="unexpected_message"
            )


class ServedModel(BaseModel):
    """A model, as OpenAI's API lists it."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(description="Its name.")
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "reelabel"


class Models(BaseModel):
    """The models of the service, as OpenAI's API lists them."""

    model_config = ConfigDict(extra="forbid")

    object: Literal["list"] = "list"
    data: list[ServedModel]


class _Connection:
    """One connection of a session, which may have had others before."""

    def __init__(self, websocket: WebSocket, session: Session, last_seq: int) -> None:
        self._websocket, self._session, self._sent = websocket, session, last_seq
        self._changed, self._has_room = asyncio.Event(), asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._number = session.connect()

    async def run(self) -> None:
        """Pass messages and events on until the session ends or the client leaves."""
        session = self._session
        session.outbox.watch(self._wake)
        session.on_room(self._make_room)
        receiving = asyncio.create_task(self._receive_all())
        sending = asyncio.create_task(self._send_all())
        try:
            await asyncio.wait((receiving, sending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (receiving, sending):
                task.cancel()
            await asyncio.gather(receiving, sending, return_exceptions=True)
            if _has_left(receiving) and session.is_current(self._number):
                session.end("client_left")
            session.disconnect(self._number)
            with suppress(RuntimeError, TimeoutError, WebSocketDisconnect):  # it is closed already
                async with asyncio.timeout(_SEND_S):
                    await self._websocket.close(self._close_code())

    def _close_code(self) -> int:
        if self._session.outbox.is_closed:
            return _RESTARTS if self._session.ending == "server_stopping" else _NORMAL
        return _FAILED if self._session.is_current(self._number) else _REPLACED

    def _wake(self) -> None:
        if self._changed.is_set():  # and cleared before the events are looked at
            return
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._changed.set)

    def _make_room(self) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._has_room.set)

    async def _receive_all(self) -> None:
        session = self._session
        while session.is_current(self._number):
            session.handle(await _receive(self._websocket))
            await asyncio.sleep(0)  # a client that sends without pause gives the others their turn
            while session.is_full and session.is_current(self._number):
                self._has_room.clear()
                if session.is_full:
                    await self._has_room.wait()

    async def _send_all(self) -> None:
        session, outbox = self._session, self._session.outbox
        while session.is_current(self._number):
            self._changed.clear()
            is_closed = outbox.is_closed
            events = outbox.after(self._sent)
            if events and events[0].seq > self._sent + 1:
                session.note_lost(events[0].seq - self._sent - 1)
            for event in events:
                await _send(self._websocket, event.text, event.data)
                self._sent = event.seq
            if is_closed:
                return
            await self._changed.wait()


def _has_left(receiving: asyncio.Task[None]) -> bool:
    """Return whether a client has closed its connection on purpose, and will not come back."""
    error = None if receiving.cancelled() else receiving.exception()
    return isinstance(error, WebSocketDisconnect) and error.code == _NORMAL


async def _receive(websocket: WebSocket) -> str | bytes:
    """Return the next message.

    Raises:
        WebSocketDisconnect: The client has left.
    """
    received = await websocket.receive()
    if received["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(received.get("code", _LOST))
    text: str | None = received.get("text")
    return received["bytes"] if text is None else text


async def _send(websocket: WebSocket, text: str, data: bytes = b"") -> None:
    async with asyncio.timeout(_SEND_S):
        await websocket.send_text(text)
        if data:
            await websocket.send_bytes(data)
