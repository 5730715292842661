"""The body of a request: JSON, or a form of that JSON and a video."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError
from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from flows.serve.refusals import RequestRefusedError, invalid_request
from flows.serve.requests.uploads import too_large
from infra.validation import too_intricate, too_many_faults

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request

    from flows.serve.requests.uploads import Upload, Uploads

Asked = TypeVar("Asked", bound=BaseModel)

# A job's texts; a video embedded in its URI is best uploaded.
MAX_JSON_BYTES = 16 * 1024**2
# Of a form, beside its fields: what is before, between and after them.
_FORM_OVERHEAD_BYTES = 64 * 1024
# A client that sends its fields more slowly holds its place for nothing, as one that says nothing does.
_LEAST_BYTES_PER_S = 1024
_MOST_DIGITS = 18
_VIDEO, _REQUEST = "video", "request"


@asynccontextmanager
async def read_body(
    request: Request, model: type[Asked], uploads: Uploads, *, idle_s: float
) -> AsyncIterator[tuple[Asked, str | None]]:
    """Read and validate a body; yield it with the path of its video, if one was uploaded.

    Args:
        request: The request.
        model: What its JSON must be.
        uploads: Where its video is kept until the end.
        idle_s: Seconds of waiting after which its client is left. What has arrived of the fields gives them back, at
            1 KiB a second; what is before, between and after the fields does not.

    Raises:
        RequestRefusedError: It is too large, too slow, no JSON and no form, or not as the model says.
        ClientDisconnect: The client has gone.
    """
    kind, options = parse_options_header(request.headers.get("content-type"))
    if kind == b"multipart/form-data":
        with uploads.receive() as upload:
            form = _Form(options.get(b"boundary", b""), upload)
            _refuse_early(request, uploads.max_bytes + MAX_JSON_BYTES + _FORM_OVERHEAD_BYTES, uploads.max_bytes)
            await _read(request, form.write, idle_s=idle_s)
            asked = _validate(model, form.finish())
            with uploads.keep(upload) as path:
                yield asked, path
    elif kind in {b"application/json", b""}:
        data = _Json()
        await _read(request, data.write, idle_s=idle_s)
        yield _validate(model, bytes(data)), None
    else:
        raise RequestRefusedError(
            f"The body is {kind.decode(errors='replace')!r}; send application/json, or multipart/form-data with the "
            f"fields {_REQUEST} (JSON) and {_VIDEO}.",
            code="unsupported_media_type",
            status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        )


def _refuse_early(request: Request, most_bytes: int, upload_bytes: int) -> None:
    """Refuse a body that says that it is too large, before it is sent."""
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and (len(stated) > _MOST_DIGITS or int(stated) > most_bytes):
        raise too_large(upload_bytes)


async def _read(request: Request, take: Callable[[bytes], int], *, idle_s: float) -> None:
    """Read a body.

    Args:
        request: The request.
        take: Takes what has arrived; returns how many bytes of it belong to a field.
        idle_s: As of `read_body`. Only waiting counts, not the time that `take` needs.

    Raises:
        RequestRefusedError: It is too slow.
    """
    stream = request.stream().__aiter__()
    left_s = idle_s
    while True:
        began_s = time.monotonic()
        try:
            chunk = await asyncio.wait_for(stream.__anext__(), left_s)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise RequestRefusedError(
                f"The body has stopped, or brought less than {_LEAST_BYTES_PER_S:,} bytes of its fields a second, for "
                f"{idle_s:g} seconds; send the whole body.",
                code="request_timeout",
                status=HTTPStatus.REQUEST_TIMEOUT,
            ) from None
        left_s -= time.monotonic() - began_s
        left_s = min(idle_s, left_s + take(chunk) / _LEAST_BYTES_PER_S)


def _validate(model: type[Asked], data: bytes) -> Asked:
    if why := too_intricate(data):
        raise _invalid(why)
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        if why := too_many_faults(error):
            raise _invalid(why) from None
        raise invalid_request(error.errors()) from None


def _invalid(why: str) -> RequestRefusedError:
    return RequestRefusedError(
        f"The body {why}; /openapi.json says what it takes.",
        code="invalid_request",
        status=HTTPStatus.UNPROCESSABLE_ENTITY,
    )


class _Json(bytearray):
    """A body that is JSON, as it arrives."""

    def write(self, data: bytes) -> int:
        """Take some of it; return how much.

        Raises:
            RequestRefusedError: It is too large.
        """
        self.extend(data)
        if len(self) > MAX_JSON_BYTES:
            raise RequestRefusedError(
                f"The body is larger than {MAX_JSON_BYTES:,} bytes; upload the video as a form.",
                code="body_too_large",
                status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            )
        return len(data)


class _Form:
    """A form with one video, written to its upload as it arrives, and one field of JSON."""

    def __init__(self, boundary: bytes, upload: Upload) -> None:
        """Start.

        Args:
            boundary: What separates its parts.
            upload: Takes the video.

        Raises:
            RequestRefusedError: The boundary is none.
        """
        self._upload = upload
        self._json = bytearray()
        self._seen: list[str] = []
        self._header = bytearray()
        self._value = bytearray()
        self._name = ""
        self._is_whole = False
        self._bytes = self._fields_bytes = 0
        if not boundary:
            self._refuse("it names no boundary")
        try:
            self._parser = MultipartParser(
                boundary,
                callbacks={
                    "on_part_begin": self._begin_part,
                    "on_header_field": lambda data, start, end: self._header.extend(data[start:end]),
                    "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
                    "on_header_end": self._end_header,
                    "on_headers_finished": self._end_headers,
                    "on_part_data": self._take,
                    "on_end": self._end,
                },
            )
        except FormParserError as error:
            self._refuse(str(error))

    def write(self, data: bytes) -> int:
        """Take some of the body; return how many bytes of it, or held back before, belong to a field.

        Raises:
            RequestRefusedError: It is no such form, or too large.
        """
        before = self._fields_bytes
        try:
            self._parser.write(data)
        except FormParserError as error:
            self._refuse(str(error))
        self._bytes += len(data)
        if self._bytes - self._fields_bytes > _FORM_OVERHEAD_BYTES:
            self._refuse(f"it has more than {_FORM_OVERHEAD_BYTES:,} bytes beside its fields")
        return self._fields_bytes - before

    def finish(self) -> bytes:
        """Return the JSON of the whole form.

        Raises:
            RequestRefusedError: A part is missing, or the video has no bytes.
        """
        missing = [name for name in (_REQUEST, _VIDEO) if name not in self._seen]
        if not self._is_whole or missing:
            self._refuse(f"{' and '.join(missing)} is missing" if missing else "its end is missing")
        return bytes(self._json)

    def _begin_part(self) -> None:
        self._name = ""

    def _end_header(self) -> None:
        if self._header.lower() == b"content-disposition":
            _, options = parse_options_header(bytes(self._value))
            self._name = options.get(b"name", b"").decode(errors="replace")
        self._header.clear()
        self._value.clear()

    def _end_headers(self) -> None:
        if self._name not in {_REQUEST, _VIDEO}:
            self._refuse(f"unknown field {self._name!r}")
        if self._name in self._seen:
            self._refuse(f"{self._name} is there twice")
        self._seen.append(self._name)

    def _take(self, data: bytes, start: int, end: int) -> None:
        self._fields_bytes += end - start
        if self._name == _VIDEO:
            self._upload.write(data[start:end])
        else:
            self._json += data[start:end]
            if len(self._json) > MAX_JSON_BYTES:
                self._refuse(f"{_REQUEST} has more than {MAX_JSON_BYTES:,} bytes")

    def _end(self) -> None:
        self._is_whole = True

    def _refuse(self, why: str) -> NoReturn:
        raise RequestRefusedError(
            f"The form cannot be read: {why.rstrip('.')}. It has the fields {_REQUEST} (JSON) and {_VIDEO}.",
            code="invalid_form",
            status=HTTPStatus.BAD_REQUEST,
        )
