"""`/v1/video/chat/stream`: live sessions over a WebSocket."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from pydantic import BaseModel, ConfigDict, Field

from reelabel.errors import ReelabelError
from tasks.domain.spec import DEFAULT_TEMPLATE
from tasks.live import events, messages
from tasks.live.media import FrameReader
from tasks.live.messages import ProtocolError, parse_message
from tasks.live.sessions import Sessions
from tasks.live.setup import LiveSetup

if TYPE_CHECKING:
    from collections.abc import Callable

    from infra.settings import Settings
    from reelabel.pool.decode_pool import DecodePool
    from tasks.live.model import LiveInfo, LiveModel
    from tasks.live.record.recorder import SessionRecord
    from tasks.live.session import Session

_LOG = logging.getLogger("reelabel")
PATH = "/v1/video/chat/stream"
_SEND_S = 30.0  # after which a client that does not read counts as lost
_CONFIG_TIMEOUT_S = 10.0
_MAX_SEEN_PX = 256 * 28**2  # to which frames are scaled down: 256 tokens of 28 by 28 pixels
_NORMAL, _LOST, _REFUSED, _FAILED, _RESTARTS, _REPLACED = 1000, 1006, 1008, 1011, 1012, 4001


def make_sessions(
    settings: Settings,
    *,
    model: LiveModel,
    info: LiveInfo,
    pool: DecodePool,
    open_record: Callable[[str, messages.SessionConfig], SessionRecord | None] = lambda _session, _config: None,
) -> Sessions:
    setup = LiveSetup(
        model=model,
        info=info,
        reader=FrameReader(pool, info, max_frame_px=_MAX_SEEN_PX),
        settings=settings.live,
        template=settings.model.template or DEFAULT_TEMPLATE,
        system_prompt=settings.model.system_prompt,
    )
    return Sessions(setup, open_record=open_record)


def live_router(sessions: Sessions, *, config_timeout_s: float = _CONFIG_TIMEOUT_S) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/models", summary="List the model that answers live sessions")
    async def models() -> Models:
        return Models(data=[ServedModel(id=sessions.setup.info.model)])

    @router.websocket(PATH)
    async def live(websocket: WebSocket) -> None:
        # The client may vanish or stop reading at any time; its session then waits for it.
        with suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
            await websocket.accept()
            try:
                session, last_seq = await _begin(websocket, sessions, timeout_s=config_timeout_s)
            except ProtocolError as refused:
                event = events.ErrorEvent(code=refused.code, message=refused.message, is_fatal=True)
                await _send(websocket, event.model_dump_json())
                await websocket.close(_REFUSED)
                return
            await _connect(websocket, session, last_seq)

    return router


async def _begin(websocket: WebSocket, sessions: Sessions, *, timeout_s: float) -> tuple[Session, int | None]:
    try:
        async with asyncio.timeout(timeout_s):
            received = await _receive(websocket)
    except TimeoutError:
        raise ProtocolError(f"No session.config arrived within {timeout_s:g} seconds.", code="config_timeout") from None
    message = None if isinstance(received, bytes) else parse_message(received)
    match message:
        case messages.SessionConfig():
            try:
                return await sessions.open(message), None
            except ProtocolError:
                raise
            except ReelabelError as error:
                raise ProtocolError(error.message, code="unavailable") from None
            except Exception:  # noqa: BLE001 - reported as of any request
                _LOG.exception("A live session could not be started")
                raise ProtocolError(
                    "The session could not be started; the server's log says why.", code="internal"
                ) from None
        case messages.SessionResume():
            return sessions.resume(message), message.last_seq
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


async def _connect(websocket: WebSocket, session: Session, last_seq: int | None) -> None:
    """Forward messages and events until the session ends, its client leaves, or another connection replaces it."""
    replaced = session.connect()
    if last_seq is not None:
        session.greet(is_resumed=True)
    receiving = asyncio.create_task(_receive_all(websocket, session))
    sending = asyncio.create_task(_send_all(websocket, session, last_seq or 0, replaced))
    tasks = (receiving, sending, asyncio.create_task(replaced.wait()))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if _has_left(receiving) and not replaced.is_set():
            session.end("client_left")
        session.disconnect(replaced)
        with suppress(RuntimeError, TimeoutError, WebSocketDisconnect):  # it is closed already
            async with asyncio.timeout(_SEND_S):
                await websocket.close(_close_code(session, is_replaced=replaced.is_set()))


def _close_code(session: Session, *, is_replaced: bool) -> int:
    if session.events.is_closed:
        return _RESTARTS if session.ending == "server_stopping" else _NORMAL
    return _REPLACED if is_replaced else _FAILED


async def _receive_all(websocket: WebSocket, session: Session) -> None:
    while True:
        await session.inbox.wait_for_room()  # also on a new connection, or each would bring another message
        session.handle(await _receive(websocket))
        await asyncio.sleep(0)  # others take turns with a client that sends without pause


async def _send_all(websocket: WebSocket, session: Session, sent: int, replaced: asyncio.Event) -> None:
    while (events := await session.events.wait_after(sent)) and not replaced.is_set():
        if events[0].seq > sent + 1:
            session.note_lost(events[0].seq - sent - 1)
        for event in events:
            await _send(websocket, event.text, event.data)
            sent = event.seq


def _has_left(receiving: asyncio.Task[None]) -> bool:
    """Return whether a client has closed its connection for good."""
    error = None if receiving.cancelled() else receiving.exception()
    return isinstance(error, WebSocketDisconnect) and error.code == _NORMAL


async def _receive(websocket: WebSocket) -> str | bytes:
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
