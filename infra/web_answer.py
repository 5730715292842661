"""One request over the web: redirects followed, the answer's status and version understood."""

from __future__ import annotations

import re
import ssl
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from urllib3.exceptions import HTTPError, LocationValueError, SSLError

from infra.errors import ObjectMissingError, ReelabelError, StoreUnavailableError, VideoRefusedError
from infra.object_info import changed
from infra.uri import WEB_SCHEMES, scheme_of, show_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

    from urllib3 import BaseHTTPResponse, PoolManager

    from infra.web_deadline import Deadline

_CHUNK_BYTES = 1 << 18
_MAX_REDIRECTS = 5  # each one is checked like the first address
_WORTH_READING_BYTES = 1 << 12
_WORTH_WAITING_S = 0.25
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")
_NUMBER = re.compile(r"[0-9]{1,18}")
_MISSING = {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}
_WITH_CONTENT = {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE}
_PASSING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
# Bytes as they are: a compressed transfer has no ranges, and could be a bomb.
_HEADERS = {"User-Agent": "Reelabel", "Accept": "*/*", "Accept-Encoding": "identity"}
# Postgres stores no NUL. A header is Latin-1, so that no other one reads like these.
_PICTURES = {code: 0x2400 + code for code in range(32)} | {0x7F: 0x2421}


class TryLaterError(Exception):
    """This attempt failed, and another one may not.

    Attributes:
        response: What the server said, if it said something.
    """

    def __init__(self, reason: str, response: BaseHTTPResponse | None = None) -> None:
        """Keep the reason, which has no full stop."""
        super().__init__(reason)
        self.response = response


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server gives for an object.

    Attributes:
        uri: What was asked for, as messages show it.
        start: Position of the first byte that comes; None where none does.
        size_bytes: Length of the whole object; None where the server does not say.
        fingerprint: From its length and its ETag or time of change; None where one of them is not told.
    """

    uri: str
    start: int | None
    size_bytes: int | None
    fingerprint: str | None
    response: BaseHTTPResponse

    def chunks(self) -> Iterator[bytes]:
        """Walk through the bytes.

        Raises:
            TryLaterError: The connection broke, or the server fell silent.
            StoreUnavailableError: The deadline passed.
        """
        with _passing_errors(self.uri):
            while chunk := self.response.read1(_CHUNK_BYTES, decode_content=False):
                yield chunk


@contextmanager
def answered(
    pools: PoolManager,
    uri: str,
    *,
    headers: dict[str, str],
    deadline: Deadline,
) -> Iterator[Answer]:
    """Ask for an object and yield the answer; what is not read of it is not waited for.

    Raises:
        StoreUnavailableError: The deadline passed.
        TryLaterError: Another attempt may succeed.
        ObjectMissingError: There is no such object, or no such host.
        ObjectChangedError: It is not the one that `headers` ask for.
        VideoRefusedError: It may not be read, here or there, or the answer cannot be understood.
    """
    target = uri
    for _ in range(_MAX_REDIRECTS + 1):
        with _response(pools, target, headers, deadline) as response:
            location = response.get_redirect_location()
            if not location:
                _check_status(response, show_uri(uri))
                yield _understand(response, show_uri(uri))
                return
        target = urljoin(target, location)
    raise VideoRefusedError(f"{show_uri(uri)} redirects more than {_MAX_REDIRECTS} times; check the address.")


@contextmanager
def _response(
    pools: PoolManager, target: str, headers: dict[str, str], deadline: Deadline
) -> Iterator[BaseHTTPResponse]:
    shown = show_uri(target)
    if (scheme_of(target) or "").lower() not in WEB_SCHEMES:
        raise VideoRefusedError(f"{shown} is where a redirect leads; only http:// and https:// are followed.")
    own = replace(deadline)
    with _passing_errors(shown), own.holding():
        # Redirects and retries are ours: urllib3 would read a redirect's body, however long, to its end.
        response = pools.request(
            "GET",
            target,
            headers=_HEADERS | headers,
            redirect=False,
            retries=False,
            preload_content=False,
            decode_content=False,
        )
    try:
        yield response
    finally:
        # The little that may be left is read, so that the connection can serve again, if it comes at once.
        if (response.length_remaining or _CHUNK_BYTES) <= _WORTH_READING_BYTES:
            own.at_s = min(own.at_s, time.monotonic() + _WORTH_WAITING_S)
            with suppress(StoreUnavailableError):
                response.drain_conn()
        response.close()


@contextmanager
def _passing_errors(uri: str) -> Iterator[None]:
    try:
        yield
    except LocationValueError:
        raise VideoRefusedError(f"{uri} is no address of the web; check it.") from None
    except SSLError as error:
        if not any(isinstance(cause, ssl.SSLCertVerificationError) for cause in (error.__cause__, *error.args)):
            raise TryLaterError(str(error)) from error
        raise VideoRefusedError(f"{uri} has no valid certificate ({error}); check the address.") from None
    except HTTPError as error:
        raise TryLaterError(f"{type(error).__name__}: {error}") from error


def _check_status(response: BaseHTTPResponse, uri: str) -> None:
    status = response.status
    if status in _WITH_CONTENT:
        return
    if status in _PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise TryLaterError(f"HTTP {status}", response)
    raise _refusal(status, uri)


def _refusal(status: int, uri: str) -> ReelabelError:
    if status in _MISSING:
        return ObjectMissingError(f"No object stands at {uri} (HTTP {status}); check the address.")
    if status == HTTPStatus.PRECONDITION_FAILED:
        return changed(uri)
    return VideoRefusedError(f"The server refuses {uri} (HTTP {status}); check that it may be read without a login.")


def _understand(response: BaseHTTPResponse, uri: str) -> Answer:
    headers = response.headers
    start: int | None = 0
    size_bytes = _number(headers.get("Content-Length"))
    if response.status != HTTPStatus.OK:
        found = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
        if found is None:
            raise VideoRefusedError(f"The server gives a part of {uri} without saying which; ask its owner.")
        start, size_bytes = _number(found[1]), _number(found[2])
    version = headers.get("ETag") or headers.get("Last-Modified")
    return Answer(
        uri=uri,
        start=start,
        size_bytes=size_bytes,
        fingerprint=f"http:{size_bytes}:{version.translate(_PICTURES)}" if version and size_bytes is not None else None,
        response=response,
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and _NUMBER.fullmatch(text) else None
