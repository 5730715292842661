"""A web server on a free port of 127.0.0.1 that misbehaves in configurable ways."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.http_server import Handler, serve

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator


@dataclass(kw_only=True)
class Page:
    """How one path is answered.

    Attributes:
        etags: One per request, the last one for all that follow; empty sends none.
        statuses: Sent for the first requests, before the page answers well.
        busy: Refusals with 503 between two answers.
        refuses_ranges: Status of answers to requests for a range; 0 answers them well.
        refuses_whole: Status of answers to requests for the whole; 0 answers them well.
        most_bytes: Most bytes of a range that one answer has.
        cut_at: Bytes of the body after which each of the first `cuts` answers breaks off.
        claimed_bytes: Content-Length, if not the true one.
        pause_s: Silence before the answer and before each step of the body.
        step_bytes: Such a step.
        header_pause_s: Silence before each byte of the header.
        status: Of an answer with the whole body.
    """

    body: bytes = b""
    ranges: bool = True
    etags: tuple[str, ...] = ('"one"',)
    sized: bool = True
    chunked: bool = False
    statuses: tuple[int, ...] = ()
    headers: dict[str, str] = field(default_factory=dict)
    busy: int = 0
    refuses_ranges: int = 0
    refuses_whole: int = 0
    most_bytes: int = 1 << 40
    cut_at: int | None = None
    cuts: int = 1
    claimed_bytes: int | None = None
    pause_s: float = 0.0
    step_bytes: int = 1024
    header_pause_s: float = 0.0
    status: int = 200
    endless: bool = False
    requests: list[str] = field(default_factory=list)
    connections: set[int] = field(default_factory=set)


@dataclass
class WebServer:
    url: str
    port: int
    pages: dict[str, Page]

    def add(self, path: str, **behaviour) -> str:
        """Serve a page, and give its URI."""
        self.pages[path] = Page(**behaviour)
        return f"{self.url}{path}"

    def requests(self, path: str) -> list[str]:
        """The ranges asked for at a path, in order."""
        return self.pages[path].requests


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[WebServer]:
    pages: dict[str, Page] = {}
    with serve(type("_Pages", (_Handler,), {"pages": pages}), tls=context) as server:
        port = server.server_port
        yield WebServer(f"http{'s' if context else ''}://127.0.0.1:{port}", port, pages)


class _Slow:
    """Writes one byte at a time."""

    def __init__(self, file, pause_s):
        self.file, self.pause_s, self.closed = file, pause_s, False

    def write(self, data):
        for byte in data:
            time.sleep(self.pause_s)
            self.file.write(bytes([byte]))

    def flush(self):
        pass

    def close(self):
        self.closed = True


class _Handler(Handler):
    protocol_version = "HTTP/1.1"
    pages: dict[str, Page]

    def do_GET(self):
        page = self.pages.get(self.path.partition("?")[0])
        if page is None:
            self.send_error(404)
            return
        page.requests.append(self.headers.get("Range", ""))
        page.connections.add(self.client_address[1])
        count = len(page.requests)
        time.sleep(page.pause_s)
        if page.header_pause_s:
            self.wfile = _Slow(self.wfile, page.header_pause_s)
        if count <= len(page.statuses):
            self._answer(page.statuses[count - 1], {**page.headers, "Content-Length": "0"})
            return
        if page.busy and count % (page.busy + 1):
            self._answer(503, {"Content-Length": "0"})
            return
        if status := page.refuses_ranges if "Range" in self.headers else page.refuses_whole:
            self._answer(status, {"Content-Length": "0"})
            return
        self._send(page, etag=page.etags[min(count, len(page.etags)) - 1] if page.etags else None)

    def _send(self, page: Page, *, etag: str | None):
        body, status, headers = page.body, page.status, dict(page.headers)
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")) if page.ranges else None
        if found:
            first = int(found[1])
            last = min(int(found[2] or len(body)), len(body) - 1, first + page.most_bytes - 1)
            status = 206 if first < len(body) else 416
            span = f"{first}-{last}" if status == 206 else "*"
            headers["Content-Range"] = f"bytes {span}/{len(body)}"
            body = body[first : last + 1]
        if page.chunked:
            headers["Transfer-Encoding"] = "chunked"
        elif page.sized:
            headers["Content-Length"] = str(len(body) if page.claimed_bytes is None else page.claimed_bytes)
        else:
            headers["Connection"] = "close"
        if etag:
            headers["ETag"] = etag
        self._answer(status, headers)
        self._send_body(page, body)

    def _send_body(self, page: Page, body: bytes):
        if page.cut_at is not None and page.cuts and len(body) > page.cut_at:
            page.cuts -= 1
            body = body[: page.cut_at]
            self.close_connection = True
        try:
            step = page.step_bytes if page.pause_s else 1 << 20
            for start in range(0, len(body), step):
                time.sleep(page.pause_s)
                part = body[start : start + step]
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part) if page.chunked else part)
            if page.chunked and not self.close_connection:
                self.wfile.write(b"0\r\n\r\n")
            while page.endless:
                self.wfile.write(bytes(1 << 16))
        except OSError:  # the reader had enough
            self.close_connection = True
        if not page.sized or page.claimed_bytes is not None:
            self.close_connection = True

    def _answer(self, status: int, headers: dict[str, str]):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
