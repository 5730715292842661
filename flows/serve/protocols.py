"""Stricter protocols for uvicorn, in which no connection starves the others."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MAX_HEAD_BYTES = 16 * 1024
# Bytes read at a time. For frames or chunks without content, parsing even this takes tens of milliseconds.
_READ_BYTES = 16 * 1024
# Time for usual data; for the excess, a connection waits this many times as long.
_USUAL_S_PER_BYTE, _SHARE = 1 / 50e6, 50
_MIN_PAUSE_S = 0.01


class _FairTransport:
    """An asyncio transport that pauses reading for its protocol, or until its connection's next turn."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:  # noqa: ANN401 - asyncio's
        transport.max_size = _READ_BYTES
        self._transport, self._loop = transport, loop
        self._is_held = self._waits_for_turn = False
        self._owed_s = 0.0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._transport, name)

    def pause_reading(self) -> None:
        self._is_held = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_held = False
        if not self._waits_for_turn:
            self._transport.resume_reading()

    def charge(self, spent_s: float, size: int) -> None:
        """Pause reading if this many bytes took unusually long."""
        self._owed_s = max(0.0, self._owed_s + spent_s - size * _USUAL_S_PER_BYTE)
        pause_s = _SHARE * self._owed_s
        if pause_s < _MIN_PAUSE_S or self._waits_for_turn or self._transport.is_closing():
            return
        self._waits_for_turn, self._owed_s = True, 0.0
        self._transport.pause_reading()
        self._loop.call_later(pause_s, self._take_turn)

    def _take_turn(self) -> None:
        self._waits_for_turn = False
        if not self._is_held and not self._transport.is_closing():
            self._transport.resume_reading()


class _FairProtocol(asyncio.Protocol):
    loop: asyncio.AbstractEventLoop
    transport: Any

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401
        if not isinstance(transport, _FairTransport):
            transport = _FairTransport(transport, self.loop)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        transport, began_s = self.transport, time.thread_time()
        super().data_received(data)
        transport.charge(time.thread_time() - began_s, len(data))


class WebSocketProtocol(_FairProtocol, WebSocketsSansIOProtocol): ...


class HttpProtocol(_FairProtocol, H11Protocol):
    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        super().__init__(*arguments, **options)
        self.conn = _StrictConnection(h11.SERVER, MAX_HEAD_BYTES)


class _StrictConnection(h11.Connection):
    """A connection whose requests have bounded headers, even if pipelined, and state only one length.

    By RFC 9112, 6.3, a request with two lengths is an attempt to smuggle a request past a proxy.
    """

    def next_event(self) -> Any:  # noqa: ANN401 - as of h11
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                raise h11.RemoteProtocolError("It has both Content-Length and Transfer-Encoding.")
            # Each line has a separator and a line end of two bytes each.
            lines = [(event.method, event.target + b" HTTP/1.1"), *event.headers]
            if sum(len(name) + len(value) + 4 for name, value in lines) > MAX_HEAD_BYTES:
                raise h11.RemoteProtocolError("Its header is too long.")
        return event
