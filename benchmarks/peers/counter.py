"""A relay in front of the S3 server that counts bytes, and can stall in the middle of an object.

Peers speak plain HTTP with it on 127.0.0.1, so that none needs the server's certificate; it speaks TLS with
the server. It passes bytes on as they come, so that the signatures of requests stay valid.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import select
import socket
import ssl
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

STALLING = b"stalls"  # in the name of an object: the relay stops in the middle of it
_STALLS_AFTER_BYTES = 200_000
_AT_ONCE_BYTES = 1 << 18
_READY_S = 30.0


class Traffic(NamedTuple):
    """What has passed since the relay started."""

    received_bytes: int
    requests: int

    def since(self, before: Traffic) -> Traffic:
        return Traffic(self.received_bytes - before.received_bytes, self.requests - before.requests)


class CountingRelay:
    """Context manager of a relay in a process of its own."""

    def __init__(self, server: str, authority: Path) -> None:
        """Prepare a relay to an https server.

        Args:
            server: URL of the server.
            authority: Certificate that the server is trusted by.
        """
        methods = multiprocessing.get_context("spawn")
        self._counts: Any = methods.Array("Q", 2)
        self._here, there = methods.Pipe()
        place = urlsplit(server)
        arguments = ((place.hostname, place.port), str(authority), self._counts, there)
        self._process = methods.Process(target=_serve, args=arguments, daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        if not self._here.poll(_READY_S):
            raise TimeoutError("The relay before the S3 server has not started.")
        self.url = f"http://127.0.0.1:{self._here.recv()}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.join()

    @property
    def traffic(self) -> Traffic:
        with self._counts.get_lock():
            return Traffic(*self._counts)


@dataclass(slots=True, eq=False)
class _Connection:
    client: socket.socket
    server: ssl.SSLSocket
    counts: Any
    passed_bytes: int = 0
    is_stalling: bool = False

    def relay(self) -> None:
        while True:
            ready = [self.server] if self.server.pending() else select.select([self.client, self.server], [], [])[0]
            if self.client in ready and not self._ask():
                return
            if self.server in ready and not self._answer():
                return

    def _ask(self) -> bool:
        data = self.client.recv(_AT_ONCE_BYTES)
        asked = data.count(b" HTTP/1.1\r\n")
        if asked:
            self.passed_bytes = 0
            self.is_stalling = data.startswith(b"GET") and STALLING in data.partition(b"\r\n")[0]
            self._count(0, asked)
        self.server.setblocking(True)
        self.server.sendall(data)
        return bool(data)

    def _answer(self) -> bool:
        self.server.setblocking(False)
        try:
            data = self.server.recv(_AT_ONCE_BYTES)
        except ssl.SSLWantReadError:  # what came was of TLS alone
            return True
        self.passed_bytes += len(data)
        if self.is_stalling and self.passed_bytes > _STALLS_AFTER_BYTES:
            self.client.recv(1)  # until the client gives up
            return False
        self._count(len(data), 0)
        self.client.sendall(data)
        return bool(data)

    def _count(self, received_bytes: int, requests: int) -> None:
        with self.counts.get_lock():
            self.counts[0] += received_bytes
            self.counts[1] += requests


def _serve(server: tuple[str, int], authority: str, counts: Any, parent: Any) -> None:  # noqa: ANN401
    trusting = ssl.create_default_context(cafile=authority)
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listening:
        parent.send(listening.getsockname()[1])
        while True:
            client, _ = listening.accept()
            threading.Thread(target=_connect, args=(client, server, trusting, counts), daemon=True).start()


def _connect(client: socket.socket, server: tuple[str, int], trusting: ssl.SSLContext, counts: Any) -> None:  # noqa: ANN401
    with contextlib.suppress(OSError), client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with (
            socket.create_connection(server) as plain,
            trusting.wrap_socket(plain, server_hostname=server[0]) as wrapped,
        ):
            _Connection(client, wrapped, counts).relay()
