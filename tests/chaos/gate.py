"""A TCP proxy in front of a server that can make connections fail."""

import select
import socket
import ssl
import threading
import time
from contextlib import contextmanager, suppress

_CHUNK_BYTES = 1 << 16
_HEAD_END = b"\r\n\r\n"
_METHODS = (b"GET ", b"HEAD ", b"PUT ", b"POST ", b"DELETE ")


class Gate:
    """A TCP proxy that can delay data, refuse connections, respond with HTTP or S3 errors, or truncate response bodies.

    Attributes:
        port: Port that it listens on.
        cuts_left: Number of responses still to be truncated.
    """

    def __init__(self, target, *, host="127.0.0.1", authority=None):
        """Listen on a free port.

        Args:
            target: Port of the server on 127.0.0.1, or a function that returns it, if it may change on a restart.
            host: Address to listen on.
            authority: Path of the certificate that the server must have, if it speaks TLS; the gate itself does not.
        """
        self._target = target
        self._tls = ssl.create_default_context(cafile=authority) if authority else None
        self._listener = socket.create_server((host, 0))
        self.port = self._listener.getsockname()[1]
        self._delay_s = 0.0
        self._status = 0
        self._refused, self._refusal = b"", b""
        self._busy, self._requests = (0, 1), 0
        self._is_shut = False
        self.cuts_left = 0
        self._open = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @contextmanager
    def slow(self, delay_s):
        """Delay every chunk of data."""
        self._delay_s = delay_s
        try:
            yield
        finally:
            self._delay_s = 0.0

    @contextmanager
    def answering(self, status):
        """Respond to every request with this HTTP status."""
        self._status = status
        self.drop()  # established connections bypass the status until they are reopened
        try:
            yield
        finally:
            self._status = 0
            self.drop()

    @contextmanager
    def refusing(self, start, status, code):
        """Respond with an S3 error to requests that begin with `start`, such as `GET /bucket/key`."""
        self._refused, self._refusal = start.encode(), _refusal(status, code)
        try:
            yield
        finally:
            self._refused = b""

    @contextmanager
    def busy(self, refused, *, of):
        """Refuse so many of so many requests with 503 SlowDown; yield a function that counts all requests so far."""
        self._requests, self._busy = 0, (refused, of)
        try:
            yield lambda: self._requests
        finally:
            self._busy = (0, 1)

    @contextmanager
    def shut(self):
        """Close all connections, and refuse new ones."""
        self._is_shut = True
        self.drop()
        try:
            yield
        finally:
            self._is_shut = False

    def cut(self, answers):
        """Truncate the bodies of the next `answers` responses to half."""
        self.drop()
        self.cuts_left = answers

    def drop(self):
        """Close all open connections."""
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def close(self):
        """Stop listening, and close all connections."""
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
            with self._connected() as server, self._known(client, server):
                self._pass_on(client, server)

    def _connected(self):
        server = socket.create_connection(("127.0.0.1", self._port_of_server()))
        return self._tls.wrap_socket(server, server_hostname="127.0.0.1") if self._tls else server

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

    def _pass_on(self, client, server):
        """Pass data on in both directions, in one thread: a TLS connection must not be read and written by two."""
        sinks = {client: server, server: client}
        while True:
            for source in select.select(list(sinks), [], [])[0]:
                sink = sinks[source]
                while (data := _received(source)) is not None:
                    if not data or not self._sent(data, source, sink, is_answer=source is server):
                        if source is server or self._tls:  # TLS cannot end one direction alone
                            return
                        del sinks[source]
                        sink.shutdown(socket.SHUT_WR)
                        break

    def _sent(self, data, source, sink, *, is_answer):
        """Pass on or answer `data`; return whether the connection may go on."""
        if self._delay_s:
            time.sleep(self._delay_s)
        if not is_answer and self._refused and data.startswith(self._refused):
            _send(source, self._refusal)
        elif not is_answer and self._is_too_much(data):
            head, _, body = _refusal(503, "SlowDown").partition(_HEAD_END)
            _send(source, head + _HEAD_END + (b"" if data.startswith(b"HEAD ") else body))
        elif is_answer and self.cuts_left and _has_body(data):
            self.cuts_left -= 1
            body_at = data.index(_HEAD_END) + len(_HEAD_END)
            _send(sink, data[: (body_at + len(data)) // 2])
            return False
        else:
            _send(sink, data)
        return True

    def _is_too_much(self, data):
        if not data.startswith(_METHODS):
            return False
        with self._lock:
            self._requests += 1
            return self._requests % self._busy[1] < self._busy[0]


def _received(source):
    """Return what has arrived: None if that is nothing yet, nothing if the connection has ended."""
    source.setblocking(False)
    try:
        return source.recv(_CHUNK_BYTES)
    except (BlockingIOError, ssl.SSLWantReadError):
        return None
    except OSError:
        return b""


def _send(sink, data):
    sink.setblocking(True)
    sink.sendall(data)


def _refusal(status, code):
    body = f"<Error><Code>{code}</Code><Message>No.</Message></Error>"
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


def _has_body(data):
    head, found, body = data.partition(_HEAD_END)
    return bool(found) and head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 206")) and len(body) > 1
