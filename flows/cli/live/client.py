"""A client of one live session, which takes the session up again when its connection is lost."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import connect

from reelabel.errors import ConfigurationError
from reelabel.text import printable
from tasks.live.protocol import EVENTS, ErrorEvent, SessionCreated, SessionStats

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt
    from websockets.sync.client import ClientConnection

    from tasks.live.protocol import Event

_PATH = "/v1/video/chat/stream"
_OPEN_S = 10.0
_RETRY_S = 0.5
_MAX_EVENT_BYTES = 2**20
# What a server answers that has no such WebSocket.
_NO_ROUTE = {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}


class LiveClient:
    """One session. `send_frame`, `send_audio` and `ask` are for one thread; events arrive on another."""

    def __init__(self, url: str, *, token: str | None, config: dict[str, Any], hear: Callable[[Event], None]) -> None:
        """Begin a session.

        Args:
            url: Address of `reelabel serve`, `http://` or `https://`.
            token: Its token; None if it has none.
            config: Fields of `session.config`.
            hear: Is called with each event, on a thread of this client.

        Raises:
            ConfigurationError: The server is not there, or refuses the session.
        """
        self._url = _socket_url(url)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._hear = hear
        self._seq = self._resumed = 0
        self._lost = False
        self._asked: list[dict[str, Any]] = []
        self._is_recounting = False  # which questions have arrived, so that none overtakes those that have not
        self._turn, self._sending = threading.Lock(), threading.Lock()
        self._ended = threading.Event()
        self._socket, self.session = self._begin({"type": "session.config", **config})
        self._listener = threading.Thread(target=self._listen, name="live-events", daemon=True)
        self._listener.start()

    @property
    def has_ended(self) -> bool:
        """Whether the session is over, or its connection could not be taken up again."""
        return self._ended.is_set()

    @property
    def is_lost(self) -> bool:
        """Whether the connection could not be taken up again."""
        return self._lost

    @property
    def resumed(self) -> int:
        """How often the connection was lost and the session taken up again."""
        return self._resumed

    def send_frame(self, jpeg: bytes, *, frame_id: str, time_s: float) -> bool:
        """Send a frame; return whether it was sent: none is while the connection is lost."""
        return self._send({"type": "video.frame", "frame_id": frame_id, "time_s": time_s}, jpeg)

    def send_audio(self, samples: npt.NDArray[np.int16], *, time_s: float) -> bool:
        """Send audio, 16 kHz, shape (N,); return whether it was sent: none is while the connection is lost."""
        return self._send({"type": "audio.chunk", "time_s": time_s}, samples.astype("<i2").tobytes())

    def ask(self, text: str, *, query_id: str, choices: tuple[str, ...] | None = None) -> None:
        """Ask a question; one that does not arrive is asked again when the session is taken up again."""
        query: dict[str, Any] = {"type": "video.query", "text": text, "query_id": query_id}
        if choices:
            query["choices"] = list(choices)
        with self._turn:
            self._asked.append(query)
            if not self._is_recounting:
                self._send(query)

    def finish(self, timeout_s: float) -> bool:
        """End the session once all questions are answered; return whether it ended in time."""
        deadline = time.monotonic() + timeout_s
        while not self._ended.is_set() and time.monotonic() < deadline:
            with self._turn:  # it may go into a connection that is gone already
                is_sent = not self._is_recounting and self._send({"type": "video.done"})
            if is_sent:
                self._ended.wait(min(5.0, max(0.0, deadline - time.monotonic())))
            else:
                self._ended.wait(_RETRY_S)
        return self._ended.is_set()

    def close(self) -> None:
        """Leave."""
        self._ended.set()
        with suppress(WebSocketException, OSError):
            self._socket.close()
        self._listener.join(_OPEN_S)

    def _send(self, message: dict[str, Any], data: bytes | None = None) -> bool:
        socket = self._socket
        try:
            with self._sending:  # nothing comes between data and its announcement
                socket.send(json.dumps(message))
                if data is not None:
                    socket.send(data)
        except (ConnectionClosed, OSError):
            return False
        return True

    def _listen(self) -> None:
        while not self._ended.is_set():
            try:
                for text in self._socket:
                    self._take(EVENTS.validate_json(text))
            except (ConnectionClosed, OSError):
                pass
            except ValueError:  # not an event that this version knows
                continue
            if not self._ended.is_set() and not self._resume():
                self._lost = not self._ended.is_set()
                self._ended.set()

    def _take(self, event: Event) -> None:
        if isinstance(event, SessionStats) and self._is_recounting:
            with self._turn:
                for query in self._asked[event.queries :]:  # they never arrived
                    self._send(query)
                self._is_recounting = False
        self._note(event)

    def _note(self, event: Event) -> None:
        self._seq = max(self._seq, event.seq)
        if isinstance(event, ErrorEvent) and event.query_id and event.query is None:  # the server does not count it
            with self._turn:
                self._asked[:] = [query for query in self._asked if query["query_id"] != event.query_id]
        self._hear(event)
        if event.type == "session.closed":
            self._ended.set()

    def _resume(self) -> bool:
        """Take the session up again; return False when its time is over."""
        with self._turn:
            self._is_recounting = True
        deadline = time.monotonic() + self.session.resume_s
        while time.monotonic() < deadline and not self._ended.wait(_RETRY_S):
            resume = {"type": "session.resume", "session_id": self.session.session_id, "last_seq": self._seq}
            try:
                self._socket, self.session = self._begin(resume | {"resume_token": self.session.resume_token})
            except _NotThereError:
                continue
            except ConfigurationError:
                return False
            self._resumed += 1
            self._send({"type": "session.stats"})
            return True
        return False

    def _begin(self, first: dict[str, Any]) -> tuple[ClientConnection, SessionCreated]:
        try:
            socket = connect(
                self._url, additional_headers=self._headers, open_timeout=_OPEN_S, max_size=_MAX_EVENT_BYTES, proxy=None
            )
            socket.send(json.dumps(first))
            while not isinstance(event := EVENTS.validate_json(socket.recv(timeout=_OPEN_S)), SessionCreated):
                if not event.seq:  # the refusal of a session that does not begin
                    socket.close()
                    raise ConfigurationError(f"The server refuses the session: {getattr(event, 'message', event.type)}")
                self._note(event)  # missed while the connection was lost
        except InvalidStatus as error:
            raise ConfigurationError(f"{self._url} refuses the connection: {_reason(error)}") from None
        except (OSError, WebSocketException, TimeoutError) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise _NotThereError(
                f"No live sessions are served at {self._url} ({printable(why)}); start `reelabel serve`, or name "
                "another server with --url."
            ) from None
        except ValueError:
            raise ConfigurationError(f"{self._url} does not serve live sessions.") from None
        self._seq = event.seq
        if event.is_resumed:
            self._hear(event)
        return socket, event


class _NotThereError(ConfigurationError):
    """The server does not answer; it may later."""


def _socket_url(url: str) -> str:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
    except ValueError:  # such as of an address in half brackets
        parts = urlsplit("")
    scheme = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise ConfigurationError(
            f"{printable(url)} is not the address of a server; use one such as http://127.0.0.1:8020."
        )
    return urlunsplit((scheme, parts.netloc, parts.path.rstrip("/") or _PATH, "", ""))


def _reason(error: InvalidStatus) -> str:
    if error.response.status_code == HTTPStatus.UNAUTHORIZED:
        return "its token is missing or wrong; set serve.token (REELABEL_SERVE_TOKEN) to that of the server."
    body = error.response.body or b""
    with suppress(ValueError, KeyError, TypeError):
        return printable(str(json.loads(body)["message"]))
    status = error.response.status_code
    if status in _NO_ROUTE:
        return f"it serves no live sessions ({status}); name live in serve.load, or check --url."
    return f"it answers with {status}."
