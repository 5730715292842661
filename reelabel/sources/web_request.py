"""One web request: follow redirects, and interpret the status and headers of the response."""

from __future__ import annotations

import re
import ssl
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from urllib3.exceptions import HTTPError, LocationValueError, SSLError

from reelabel.errors import ObjectMissingError, ReelabelError, VideoRefusedError
from reelabel.sources.object_info import WEB_SCHEMES, changed, is_web_uri, redact_uri, scheme_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from urllib3 import BaseHTTPResponse, PoolManager

    from reelabel.sources.cancel import Cancellation, Deadline

_CHUNK_BYTES = 1 << 18
_MAX_REDIRECTS = 5  # each one is checked like the first address
_WORTH_READING_BYTES = 1 << 12
_WORTH_WAITING_S = 0.25
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")
_NUMBER = re.compile(r"[0-9]{1,18}")
_MISSING = {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}
_WITH_CONTENT = {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE}
_RANGE_REFUSED = {
    *(HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_ACCEPTABLE, HTTPStatus.NOT_IMPLEMENTED),
    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
}
_RETRIED = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
# No compression: ranges would not work, and the response could be a decompression bomb.
_HEADERS = {"User-Agent": "Reelabel", "Accept": "*/*", "Accept-Encoding": "identity"}
# Control characters become their Unicode pictures, because Postgres cannot store NUL. Headers are Latin-1, so
# no other header maps to the same text.
_CONTROL_PICTURES = {code: 0x2400 + code for code in range(32)} | {0x7F: 0x2421}


class AttemptFailedError(Exception):
    """This attempt failed, but another one may succeed."""

    def __init__(self, reason: str, response: BaseHTTPResponse | None = None) -> None:
        super().__init__(reason)
        self.response = response


@dataclass(frozen=True, slots=True, kw_only=True)
class WebResponse:
    """A successful response for an object, whose URI is that of the request, as shown in messages.

    `start` is the position of the first byte in the body; None if the body is empty. The size is that of the whole
    object. The fingerprint is made of the size, and the ETag or modification time; None if one of them is missing.
    """

    uri: str
    start: int | None
    size_bytes: int | None
    fingerprint: str | None
    response: BaseHTTPResponse

    def chunks(self) -> Iterator[bytes]:
        """Yield the body in chunks, which count only if `open_response` raises nothing in the end."""
        while chunk := self.response.read1(_CHUNK_BYTES, decode_content=False):
            yield chunk


@dataclass(frozen=True, slots=True)
class Requests:
    """What the requests for one object share: connections, cancellation and deadline."""

    pools: PoolManager
    cancellation: Cancellation
    deadline: Deadline


@contextmanager
def open_response(requests: Requests, uri: str, *, first: int | None, last: int | None) -> Iterator[WebResponse]:
    """Request an object and yield the response. On exit, an unread rest is discarded without waiting for it.

    The range is from byte `first` to `last`, or the end; a `first` of None requests the whole object, as does one try
    if the range is refused.

    Raises as `Watchdog.check` does, AttemptFailedError if another attempt may succeed, ObjectMissingError,
    ObjectChangedError, and VideoRefusedError if the settings or the server deny access, or the response is invalid.
    """
    shown = redact_uri(uri)
    if first is not None:
        span = {"Range": f"bytes={first}-{'' if last is None else last}"}
        with _followed(requests, uri, span) as response:
            if not _refuses_range(response, first):
                _check_status(response, shown)
                yield _interpret(response, shown)
                return
    with _followed(requests, uri, {}) as response:
        if response.status in _RANGE_REFUSED:
            raise VideoRefusedError(
                f"The server refuses {shown} with and without a range (HTTP {response.status}); check the address, or "
                "copy the video to S3 or a folder."
            )
        _check_status(response, shown)
        yield _interpret(response, shown)


def _refuses_range(response: BaseHTTPResponse, first: int) -> bool:
    """Return whether the range may have been refused, and not because it starts past the end of the object."""
    found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    size_bytes = _number(found[2]) if found else None
    is_past_end = size_bytes is not None and size_bytes <= first
    return response.status in _RANGE_REFUSED and not is_past_end


@contextmanager
def _followed(requests: Requests, uri: str, headers: dict[str, str]) -> Iterator[BaseHTTPResponse]:
    target = uri
    for _ in range(_MAX_REDIRECTS + 1):
        with _response(requests, target, headers) as response:
            location = response.get_redirect_location()
            if not location:
                yield response
                return
        with suppress(ValueError):  # an invalid address in brackets: `_response` refuses it
            location = urljoin(target, location)
        target = location
    raise VideoRefusedError(f"{redact_uri(uri)} redirects more than {_MAX_REDIRECTS} times; check the address.")


@contextmanager
def _response(requests: Requests, target: str, headers: dict[str, str]) -> Iterator[BaseHTTPResponse]:
    shown = redact_uri(target)
    if (scheme_of(target) or "").lower() not in WEB_SCHEMES:
        raise VideoRefusedError(f"A redirect leads to {shown}; only http:// and https:// are followed.")
    if not is_web_uri(target):
        raise VideoRefusedError(
            f"{shown} is not a valid web address; check that its host is a name in ASCII or an IP address."
        )
    with requests.cancellation.watching(requests.deadline) as watchdog, _converted_errors(shown):
        # Redirects and retries are handled here: urllib3 would read the whole body of a redirect, however long.
        response = requests.pools.request(
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
            # Read a short rest if it arrives at once, so that the connection can be reused.
            if (response.length_remaining or _CHUNK_BYTES) <= _WORTH_READING_BYTES:
                watchdog.hasten(_WORTH_WAITING_S)
                response.drain_conn()
            response.close()


@contextmanager
def _converted_errors(uri: str) -> Iterator[None]:
    try:
        yield
    except LocationValueError:
        raise VideoRefusedError(f"{uri} is not a valid web address; check it.") from None
    except SSLError as error:
        if not any(isinstance(cause, ssl.SSLCertVerificationError) for cause in (error.__cause__, *error.args)):
            raise AttemptFailedError(str(error)) from error
        raise VideoRefusedError(f"The certificate of {uri} is not valid ({error}); check the address.") from None
    except HTTPError as error:
        raise AttemptFailedError(f"{type(error).__name__}: {error}") from error


def _check_status(response: BaseHTTPResponse, uri: str) -> None:
    status = response.status
    if status in _WITH_CONTENT:
        return
    if status in _RETRIED or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise AttemptFailedError(f"HTTP {status}", response)
    raise _refusal(status, uri)


def _refusal(status: int, uri: str) -> ReelabelError:
    if status in _MISSING:
        return ObjectMissingError(f"There is no object at {uri} (HTTP {status}); check the address.")
    if status == HTTPStatus.PRECONDITION_FAILED:
        return changed(uri)
    return VideoRefusedError(
        f"The server denies access to {uri} (HTTP {status}); check that it can be read without a login."
    )


def _interpret(response: BaseHTTPResponse, uri: str) -> WebResponse:
    headers = response.headers
    start: int | None = 0
    size_bytes = _number(headers.get("Content-Length"))
    if response.status != HTTPStatus.OK:
        found = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
        if found is None:
            raise VideoRefusedError(
                f"The server sends a range of {uri} without Content-Range; report this to its owner."
            )
        start, size_bytes = _number(found[1]), _number(found[2])
    version = headers.get("ETag") or headers.get("Last-Modified")
    return WebResponse(
        uri=uri,
        start=start,
        size_bytes=size_bytes,
        fingerprint=f"http:{size_bytes}:{version.translate(_CONTROL_PICTURES)}"
        if version and size_bytes is not None
        else None,
        response=response,
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and _NUMBER.fullmatch(text) else None
