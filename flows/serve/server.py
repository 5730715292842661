"""Runs the HTTP server: its address, its shutdown, and timeouts of silent clients."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import socket
import threading
import time
from contextlib import contextmanager, suppress
from http import HTTPStatus
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.responses import JSONResponse

from flows.serve.errors import error_response
from flows.serve.guard import LOOPBACK
from flows.serve.protocols import HttpProtocol, WebSocketProtocol
from reelabel.errors import ConfigurationError
from tasks.live.messages import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from fastapi import FastAPI
    from starlette.types import Receive, Scope, Send

    from infra.settings import ServeSettings

_LOG = logging.getLogger("reelabel")
_BACKLOG = 2048
# Of the ten seconds of Ctrl-C; engines and services also stop within them.
_INTERRUPT_S = 4.0
_SWEEP_S = 1.0
_POLL_S = 0.05
_END_S = 5.0
# Bytes buffered for a client that does not read. Messages wait for it, but answers to its pings do not.
_MAX_UNREAD_BYTES = 16 * 1024**2
_HEAD, _HANDSHAKE, _READING = "the head of a request", "a handshake", "a client that reads the rest"


def reserve(settings: ServeSettings) -> socket.socket:
    """Bind the address, so that no other process takes it while models load; it does not listen yet.

    Raises:
        ConfigurationError: Other machines could send requests without a token, or the address is not available.
    """
    if settings.host not in LOOPBACK and settings.token is None and not settings.without_token:
        raise ConfigurationError(
            f"{settings.host} can be reached by others; set serve.token, or serve.without_token behind a proxy with "
            f"logins."
        )
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # TCP_NODELAY: otherwise the body of an answer waits until its header has been acknowledged, 40 ms later.
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.bind((settings.host, settings.port))
    except OSError as error:
        opened.close()
        raise _cannot_listen(settings, error) from None
    return opened


def _cannot_listen(settings: ServeSettings, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"Cannot listen on {settings.host}:{settings.port} ({error.strerror or error}); set serve.host or serve.port."
    )


def listen(opened: socket.socket, settings: ServeSettings) -> None:
    """Listen, or continue to listen.

    Raises:
        ConfigurationError: Another process is listening there by now.
    """
    try:
        opened.listen(_BACKLOG)
    except OSError as error:
        raise _cannot_listen(settings, error) from None


def url_of(opened: socket.socket) -> str:
    """Return the URL of a socket."""
    host, port = opened.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def answering_loading(opened: socket.socket, settings: ServeSettings) -> Iterator[None]:
    """Answer all requests with 503, `/health` with the status `loading`; the socket stays open for the next server.

    Raises:
        ConfigurationError: Another process is listening there by now.
    """
    listen(opened, settings)
    config = uvicorn.Config(
        _answer, loop="asyncio", ws="none", lifespan="off", log_config=None, access_log=False, server_header=False
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([opened.dup()],), name="loading", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = server.force_exit = True
        thread.join(_END_S)


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/health":
        answer = JSONResponse(
            {"status": "loading", "version": version("reelabel")},
            HTTPStatus.SERVICE_UNAVAILABLE,
            headers={"Retry-After": "1"},
        )
    else:
        answer = error_response(
            "loading", "The models are being loaded; try again soon.", HTTPStatus.SERVICE_UNAVAILABLE
        )
    answer.headers["Connection"] = "close"
    await answer(scope, receive, send)


def serve(
    app: FastAPI,
    opened: socket.socket,
    settings: ServeSettings,
    *,
    ready: Callable[[], None],
    end_sessions: Callable[[], Awaitable[None]] | None = None,
) -> int | None:
    """Serve an application until a signal; then finish requests in progress and live sessions, within a time limit.

    Args:
        app: The application.
        opened: The reserved socket.
        settings: The timeouts.
        ready: Called when requests can be answered.
        end_sessions: Ends all live sessions and waits until their clients are notified.

    Returns:
        The signal that stopped it.

    Raises:
        ConfigurationError: Another process is listening there by now.
    """
    listen(opened, settings)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:  # each connected client takes a descriptor
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server = _Server(app, settings, ready=ready, end_sessions=end_sessions)
    server.run(sockets=[opened])
    return server.ended_by


class _Server(uvicorn.Server):
    def __init__(
        self,
        app: FastAPI,
        settings: ServeSettings,
        *,
        ready: Callable[[], None],
        end_sessions: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        # uvloop would take over the signals of `infra.signals`.
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http=HttpProtocol,
            ws=WebSocketProtocol,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            # Pictures do not compress further, and compressed data could be a bomb.
            ws_per_message_deflate=False,
            ws_max_size=MAX_MESSAGE_BYTES,
        )
        super().__init__(config)
        self.ended_by: int | None = None  # the first signal
        self._ready, self._end_sessions = ready, end_sessions
        self._grace_s = settings.stop_timeout_s
        self._sweeper, self._swept_s = Sweeper(silence_s=settings.idle_timeout_s), 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, end live sessions, and give the remaining time to requests in progress."""
        began_s = time.monotonic()
        if self._end_sessions is not None:
            for server in self.servers:
                server.close()
            for connection in list(self.server_state.connections):
                if hasattr(connection, "cycle"):  # not a WebSocket
                    connection.shutdown()
            ending = asyncio.ensure_future(self._end_sessions())
            while not ending.done() and time.monotonic() - began_s < self._grace_s:  # Ctrl-C shortens it
                await asyncio.wait((ending,), timeout=_POLL_S)
        self.config.timeout_graceful_shutdown = max(1, round(self._grace_s - (time.monotonic() - began_s)))
        await super().shutdown(sockets=sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM; unlike uvicorn, do not raise them again at the end."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: Any) -> None:  # noqa: ANN401 - the library's signature
        self.ended_by = self.ended_by or sig
        if sig == signal.SIGINT:
            self._grace_s = _INTERRUPT_S
        super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        now_s = time.monotonic()
        if now_s - self._swept_s > _SWEEP_S:
            self._swept_s = now_s
            self._sweeper.sweep(self.server_state.connections)
        return await super().on_tick(counter)


class Sweeper:
    """Closes connections that send nothing, do not read, or never finish their handshake; runs in their event loop."""

    def __init__(self, *, silence_s: float) -> None:
        self._silence_s = silence_s  # for which a connection may wait for the same thing
        self._waits: dict[Any, tuple[object, float]] = {}  # what each waits for, and since when

    def sweep(self, connections: Iterable[Any]) -> None:
        """Check connections, which are uvicorn protocols."""
        now_s, before, self._waits = time.monotonic(), self._waits, {}
        for connection in list(connections):
            transport, waits_for = connection.transport, _waits_for(connection)
            if transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
                transport.abort()
            if waits_for is None:
                continue
            last, since_s = before.get(connection, (None, now_s))
            self._waits[connection] = waits_for, since_s if waits_for is last else now_s
            if waits_for is last and now_s - since_s > self._silence_s:
                transport.abort() if waits_for is _READING else transport.close()


def _waits_for(connection: Any) -> object | None:  # noqa: ANN401 - a protocol of uvicorn's
    """Return what a connection waits for, as the same object each time; None during a request, or for a WebSocket."""
    if connection.transport.is_closing():
        return _READING
    if not hasattr(connection, "cycle"):
        # Its parser does not answer a handshake that it rejects, such as one with a line of more than 8 KiB.
        return None if getattr(connection, "handshake_complete", True) else _HANDSHAKE
    cycle: Any = connection.cycle
    if cycle is None:
        return _HEAD
    return cycle if cycle.response_complete else None  # the next header, or the rest of a body that is not read
