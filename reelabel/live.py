"""A client of live sessions: sends frames and questions, yields events, and resumes after a lost connection.

>>> async with LiveClient("http://127.0.0.1:8020", window=32) as client:
...     await client.send_frame(jpeg, time_s=0.0)
...     await client.ask("Is the door open?", choices=["yes", "no"])
...     await client.finish()
...     async for event in client:
...         if event["type"] == "response.done":
...             print(event["text"])

Events are those of docs/live.md, as dictionaries. They are received only during iteration: iterate from the beginning,
in a task of its own if frames are sent meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit, urlunsplit

from reelabel.errors import ConfigurationError
from reelabel.optional import require
from reelabel.text import escape_controls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from websockets.asyncio.client import ClientConnection
    from websockets.exceptions import InvalidStatus

_PATH = "/v1/video/chat/stream"
_OPEN_S = 10.0
_RETRY_S = 0.5
_MAX_EVENT_BYTES = 2**24
_TOO_LONG = 1009  # the code with which WebSockets refuse a message (RFC 6455)
_NO_EVENT = (ValueError, TypeError, LookupError, AttributeError, RecursionError)  # of JSON that is no event
# Status codes of servers without this WebSocket.
_NO_ROUTE = {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}


class LiveClient:
    """One session; an async context manager, and an async iterator of its events. For one event loop.

    Attributes:
        session: The event `session.created`: id, model, limits.
        resumed: How often the connection was lost and the session resumed.
        is_lost: Whether the connection was lost and could not be resumed in time; iteration has then ended.
    """

    def __init__(self, url: str, *, token: str | None = None, **config: Any) -> None:  # noqa: ANN401 - JSON
        """Check the address; nothing is sent yet.

        Args:
            url: Address of `reelabel serve`, `http://` or `https://`.
            token: Its token; None if it has none.
            config: Fields of `session.config`.

        Raises:
            ConfigurationError: The address is invalid.
        """
        self.session: dict[str, Any] = {}
        self._known, self._resume_s = dict[str, str](), 0.0
        self.resumed = 0
        self.is_lost = False
        self._url, self._config = _socket_url(url), config
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._socket: ClientConnection | None = None
        self._seq = self._queries = 0
        self._open: dict[str, dict[str, Any]] = {}  # questions by their ids until they are answered
        self._is_finishing = self._is_connected = False
        self._sending = asyncio.Lock()  # data directly follows its announcement

    async def __aenter__(self) -> Self:
        """Begin the session.

        Raises:
            ConfigurationError: The server cannot be reached, or refuses the session.
        """
        self._socket = await self._connect({"type": "session.config", **self._config})
        try:
            async with asyncio.timeout(_OPEN_S):
                event = await self._next()
        except asyncio.CancelledError:
            await self.close()
            raise
        except Exception:  # noqa: BLE001 - another server may answer anything
            await self.close()
            raise ConfigurationError(f"{self._url} does not serve live sessions.") from None
        if event["type"] != "session.created":
            await self.close()
            why = escape_controls(str(event.get("message", event["type"])))
            raise ConfigurationError(f"The server refuses the session: {why}")
        self._is_connected = True
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send_frame(self, picture: bytes, *, time_s: float | None = None, frame_id: str | None = None) -> bool:
        """Send an encoded picture; return whether it was sent, which it is not while the connection is lost."""
        return await self._send({"type": "video.frame", "time_s": time_s, "frame_id": frame_id}, picture)

    async def send_audio(self, samples: bytes, *, time_s: float | None = None) -> bool:
        """Send 16-bit little-endian PCM, one channel of 16 kHz; return whether it was sent."""
        return await self._send({"type": "audio.chunk", "time_s": time_s}, samples)

    async def ask(self, text: str, *, query_id: str | None = None, **fields: Any) -> str:  # noqa: ANN401 - JSON
        """Ask a question, which is sent again if the connection is lost before its answer.

        Args:
            text: The question.
            query_id: A unique id; the default is generated.
            fields: Other fields of `video.query`, such as `choices` or `every_s`.

        Returns:
            The id, which the events about the question have as well.
        """
        query_id = query_id or f"query-{self._queries}"
        self._queries += 1
        query = {"type": "video.query", "text": text, "query_id": query_id, **fields}
        self._open[query_id] = query
        await self._send(query)
        return query_id

    async def cancel(self, query_id: str | None = None) -> bool:
        """Cancel a question, or a standing question; without an id, the one that is being answered."""
        return await self._send({"type": "response.cancel", "query_id": query_id})

    async def finish(self) -> None:
        """End the session, and iteration, once all questions are answered."""
        self._is_finishing = True
        await self._send({"type": "video.done"})

    async def close(self) -> None:
        """Close the connection."""
        if self._socket:
            await self._socket.close()

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        """Yield events until the session has ended or is lost; `data` of an event is speech that is sent as bytes.

        Raises:
            ConfigurationError: The server sent what is no event, or one side a message that the other finds too long.
        """
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415 - an optional dependency

        while True:
            try:
                event = await self._next()
            except (ConnectionClosed, OSError) as error:
                if isinstance(error, ConnectionClosed) and error.sent and error.sent.code == _TOO_LONG:
                    raise ConfigurationError(f"A message of the session at {self._url} is too long.") from None
                if await self._resume():
                    continue
                self.is_lost = True
                return
            if event.get("is_fatal") and not event["seq"]:  # the session cannot be resumed
                self.is_lost = True
                return
            yield event
            if event["type"] == "session.closed":
                return

    async def _next(self) -> dict[str, Any]:
        socket = self._opened()
        try:
            event: dict[str, Any] = json.loads(await socket.recv())
            if event["type"] == "response.audio":
                event["data"] = await socket.recv()
            self._seq = max(self._seq, event["seq"])
            if event["type"] == "session.created":
                self._known = {name: event[name] for name in ("session_id", "resume_token")}
                self._resume_s, self.session = float(event["resume_s"]), event
            self._track_query(event)
        except _NO_EVENT:
            await self.close()
            raise ConfigurationError(f"{self._url} sent a message that is no event of a live session.") from None
        return event

    def _track_query(self, event: dict[str, Any]) -> None:
        query_id = event.get("query_id")
        query = self._open.get(query_id or "", {})
        is_standing = query.get("on_change") or query.get("every_s")
        ends = {"response.done", "error"} if not is_standing else set()
        is_refused = event["type"] == "error" and event.get("query") is None
        if event["type"] in ends or is_refused or event.get("code") == "standing_ended":
            self._open.pop(query_id or "", None)

    def _opened(self) -> ClientConnection:
        if self._socket is None:
            raise ConfigurationError("The session has not begun; use the client in an `async with` block.")
        return self._socket

    async def _send(self, message: dict[str, Any], data: bytes | None = None) -> bool:
        self._opened()
        return self._is_connected and await self._send_now(message, data)

    async def _send_now(self, message: dict[str, Any], data: bytes | None = None) -> bool:
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415 - an optional dependency

        text = json.dumps({name: value for name, value in message.items() if value is not None})
        async with self._sending:
            socket = self._opened()
            try:
                await socket.send(text)
                if data is not None:
                    await socket.send(data)
            except (ConnectionClosed, OSError):
                return False
        return True

    async def _resume(self) -> bool:
        """Connect again, and send again what may not have arrived; return False if the session is lost."""
        self._is_connected = False
        deadline_s = time.monotonic() + self._resume_s
        while time.monotonic() < deadline_s:
            await asyncio.sleep(_RETRY_S)
            try:
                self._socket = await self._connect({"type": "session.resume", **self._known, "last_seq": self._seq})
            except _UnavailableError:
                continue
            except ConfigurationError:
                return False
            self.resumed += 1
            sent: list[dict[str, Any]] = []
            # Others may be asked meanwhile.
            while unsent := [query for query in self._open.values() if query not in sent]:
                await self._send_now(unsent[0] | {"again": True})
                sent.append(unsent[0])
            if self._is_finishing:
                await self._send_now({"type": "video.done"})
            self._is_connected = True
            return True
        return False

    async def _connect(self, first: dict[str, Any]) -> ClientConnection:
        require("websockets", extra="live", purpose="A client of live sessions")
        from websockets.asyncio.client import connect  # noqa: PLC0415 - an optional dependency
        from websockets.exceptions import InvalidStatus, WebSocketException  # noqa: PLC0415

        try:
            socket = await connect(
                self._url,
                additional_headers=self._headers,
                open_timeout=_OPEN_S,
                max_size=_MAX_EVENT_BYTES,
                proxy=None,
            )
            await socket.send(json.dumps(first))
        except InvalidStatus as error:
            is_busy = error.response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR  # such as a proxy's 502
            refusal = _UnavailableError if is_busy else ConfigurationError
            raise refusal(f"{self._url} refuses the connection: {_reason(error)}") from None
        except (OSError, WebSocketException, TimeoutError) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise _UnavailableError(
                f"No live sessions are served at {self._url} ({escape_controls(why)}); start `reelabel serve`, or name "
                "another server with --url."
            ) from None
        return socket


class _UnavailableError(ConfigurationError): ...


def _socket_url(url: str) -> str:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        is_address = bool(parts.hostname) and parts.port != 0
    except ValueError:  # for example, an unclosed bracket in the address, or a port that is no number
        parts, is_address = urlsplit(""), False
    scheme = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}.get(parts.scheme)
    if scheme is None or not is_address:
        raise ConfigurationError(
            f"{escape_controls(url)} is not the address of a server; use one such as http://127.0.0.1:8020."
        )
    return urlunsplit((scheme, parts.netloc, parts.path.rstrip("/") or _PATH, "", ""))


def _reason(error: InvalidStatus) -> str:
    if error.response.status_code == HTTPStatus.UNAUTHORIZED:
        return "its token is missing or wrong; set serve.token (REELABEL_SERVE_TOKEN) to that of the server."
    body = error.response.body or b""
    with suppress(ValueError, KeyError, TypeError):
        return escape_controls(str(json.loads(body)["message"]))
    status = error.response.status_code
    if status in _NO_ROUTE:
        return f"it serves no live sessions ({status}); name live in serve.load, or check --url."
    return f"it answers with {status}."
