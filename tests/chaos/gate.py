"""A gate before a server, through which all connections go, and where they can be made to fail."""

import socket
import threading
import time
from contextlib import contextmanager, suppress

_CHUNK_BYTES = 1 << 16
_HEAD_END = b"\r\n\r\n"


class Gate:
    """Passes TCP on; for a while it may be slow, refuse, answer errors of HTTP or S3, or cut bodies in half.

    Attributes:
        port: Where it listens.
        cuts_left: Answers whose body is still to be cut.
    """

    def __init__(self, target, *, host="127.0.0.1"):
        """Listen on a free port.

        Args:
            target: Port of the server on 127.0.0.1; or what gives it, for one that may come back at another.
            host: Where the gate listens.
        """
        self._target = target
        self._listener = socket.create_server((host, 0))
        self.port = self._listener.getsockname()[1]
        self._delay_s = 0.0
        self._status = 0
        self._refused, self._refusal = b"", b""
        self._is_shut = False
        self.cuts_left = 0
        self._open = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @contextmanager
    def slow(self, delay_s):
        """Let every piece of data wait."""
        self._delay_s = delay_s
        try:
            yield
        finally:
            self._delay_s = 0.0

    @contextmanager
    def answering(self, status):
        """Answer every request with an HTTP status of its own."""
        self._status = status
        self.drop()  # a connection that is open is known by its next request only
        try:
            yield
        finally:
            self._status = 0
            self.drop()

    @contextmanager
    def refusing(self, start, status, code):
        """Answer requests that begin so, such as `GET /bucket/key`, as S3 answers what it does not allow."""
        self._refused, self._refusal = start.encode(), _refusal(status, code)
        try:
            yield
        finally:
            self._refused = b""

    @contextmanager
    def shut(self):
        """End every connection, and take no new one."""
        self._is_shut = True
        self.drop()
        try:
            yield
        finally:
            self._is_shut = False

    def cut(self, answers):
        """Cut the bodies of the next answers in half."""
        self.drop()
        self.cuts_left = answers

    def drop(self):
        """End every connection that is open."""
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def close(self):
        """Listen no more."""
        self._listener.close()
        self.drop()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with suppress(OSError), client:
            if self._is_shut:
                return
            if self._status:
                self._refuse(client)
                return
            with socket.create_connection(("127.0.0.1", self._port_of_server())) as server, self._known(client, server):
                upward = threading.Thread(target=self._pass_on, args=(client, server, False), daemon=True)
                upward.start()
                self._pass_on(server, client, True)
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
                upward.join()

    def _port_of_server(self):
        return self._target() if callable(self._target) else self._target

    @contextmanager
    def _known(self, *sockets):
        with self._lock:
            self._open.update(sockets)
        try:
            yield
        finally:
            with self._lock:
                self._open.difference_update(sockets)

    def _refuse(self, client):
        head = b""
        while _HEAD_END not in head and (data := client.recv(_CHUNK_BYTES)):
            head += data
        client.sendall(b"HTTP/1.1 %d Broken\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % self._status)

    def _pass_on(self, source, sink, is_answer):
        with suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                if self._delay_s:
                    time.sleep(self._delay_s)
                if not is_answer and self._refused and data.startswith(self._refused):
                    source.sendall(self._refusal)
                    continue
                if is_answer and self.cuts_left and _has_body(data):
                    self.cuts_left -= 1
                    body_at = data.index(_HEAD_END) + len(_HEAD_END)
                    sink.sendall(data[: (body_at + len(data)) // 2])
                    break
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)


def _refusal(status, code):
    body = f"<Error><Code>{code}</Code><Message>No.</Message></Error>"
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


def _has_body(data):
    head, found, body = data.partition(_HEAD_END)
    return bool(found) and head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 206")) and len(body) > 1
