"""An S3 server in memory that behaves like some stores and proxies: no ETags, no ranges, or most requests refused."""

from __future__ import annotations

import hashlib
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from infra.settings import StoreSettings
from tests.http_server import Handler, serve

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Elsewhere:
    """What the server holds, and how it behaves.

    Attributes:
        objects: Content and time of the last change, in seconds, by `/bucket/key`.
        etags: Whether answers and listings have ETags.
        versions: Whether answers have version ids.
        ranges: Whether ranges are honoured.
        most_bytes: Most bytes of a range that one answer has.
        refused: Requests refused with 503 SlowDown, of each `per`.
        requests: All that was asked, as method and path.
    """

    settings: StoreSettings
    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    etags: bool = True
    versions: bool = False
    ranges: bool = True
    most_bytes: int = 1 << 40
    refused: int = 0
    per: int = 4
    requests: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def is_refused(self, request: str) -> bool:
        with self.lock:
            self.requests.append(request)
            return len(self.requests) % self.per < self.refused


@contextmanager
def serving_elsewhere(**behaviour) -> Iterator[Elsewhere]:
    login = {"access_key_id": "key", "secret_access_key": "secret"}
    with serve(_Handler) as server:
        settings = StoreSettings(uri="s3://bucket/cache", endpoint_url=server.url, **login)
        server.store = Elsewhere(settings, **behaviour)
        yield server.store


class _Handler(Handler):
    protocol_version = "HTTP/1.1"

    def do(self):
        body = self.read_body()
        store, path = self.server.store, unquote(urlsplit(self.path).path)
        if store.is_refused(f"{self.command} {path}"):
            self.respond(503, b"<Error><Code>SlowDown</Code></Error>")
        elif self.command == "PUT":
            self._put(store, path, body)
        elif self.command == "DELETE":
            store.objects.pop(path, None)
            self.respond(204)
        elif path.count("/") == 1 or path.endswith("/"):
            self._list(store, path.strip("/"))
        else:
            self._get(store, path)

    def _put(self, store: Elsewhere, path: str, body: bytes):
        if self.headers.get("If-None-Match") and path in store.objects:
            self.respond(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return
        store.objects[path] = body, store.objects.get(path, (b"", 1_800_000_000))[1] + 1
        self.respond(200)

    def _list(self, store: Elsewhere, bucket: str):
        query = parse_qs(urlsplit(self.path).query)
        prefix, after = (f"/{bucket}/{query.get(name, [''])[0]}" for name in ("prefix", "start-after"))
        found = "".join(
            f"<Contents><Key>{escape(path.removeprefix(f'/{bucket}/'))}</Key><Size>{len(data)}</Size>"
            f"<LastModified>{formatdate(time, usegmt=True)}</LastModified>"
            + (f"<ETag>&quot;{_etag(data)}&quot;</ETag>" if store.etags else "")
            + "</Contents>"
            for path, (data, time) in sorted(store.objects.items())
            if path.startswith(prefix) and path > after
        )
        self.respond(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>".encode())

    def _get(self, store: Elsewhere, path: str):
        if path not in store.objects:
            self.respond(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        data, time = store.objects[path]
        headers = {"Last-Modified": formatdate(time, usegmt=True)}
        if store.etags:
            headers["ETag"] = f'"{_etag(data)}"'
        if store.versions:
            headers["x-amz-version-id"] = _etag(data)[:8]
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")) if store.ranges else None
        if not found:
            self.respond(200, data, **headers)
            return
        first = int(found[1])
        if first >= len(data):
            self.respond(416, b"<Error><Code>InvalidRange</Code></Error>")
            return
        part = data[first : min(int(found[2]) + 1, first + store.most_bytes)]
        span = f"bytes {first}-{first + len(part) - 1}/{len(data)}"
        self.respond(206, part, **headers, Content_Range=span)


for method in ("GET", "HEAD", "PUT", "DELETE"):
    setattr(_Handler, f"do_{method}", _Handler.do)


def _etag(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
