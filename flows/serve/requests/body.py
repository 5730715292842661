"""The body of a request: JSON, or a form of that JSON and a video, which is kept for as long as requests need it.

The form is read by `python_multipart` itself and not by Starlette's parser of forms: that one holds a video without a
file name in memory, writes others twice, and cannot refuse one as soon as it is too large.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
import threading
import time
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import IO, TYPE_CHECKING, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError
from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from flows.serve.refusals import RequestRefusedError, invalid_request
from infra.validation import too_intricate, too_many_faults
from reelabel.disk import disk_errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from starlette.requests import Request

RequestT = TypeVar("RequestT", bound=BaseModel)

# A job's texts; a video embedded in its URI is best uploaded.
MAX_JSON_BYTES = 16 * 1024**2
_MIB = 1024**2
# Of a form, beside its fields: what is before, between and after them.
_FORM_OVERHEAD_BYTES = 64 * 1024
# A client that sends its fields more slowly holds its slot for nothing, as one that says nothing does.
_LEAST_BYTES_PER_S = 1024
_MOST_DIGITS = 18
_VIDEO, _REQUEST = "video", "request"


class Uploads:
    """The uploaded videos of one service: files of a temporary folder, named by their content. Thread-safe.

    The same bytes are the same file of the same version, so that their frames are found in the cache again.
    """

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        """Keep videos of at most `max_bytes` in a folder of this process alone."""
        self.folder, self.max_bytes = folder, max_bytes
        self._users = Counter[Path]()
        self._lock = threading.Lock()

    @contextmanager
    def receive(self) -> Iterator[Upload]:
        """Yield what a video is written to; it is gone at the end, unless `keep` has taken it over.

        Raises:
            DiskFullError: There is no space for it.
        """
        with disk_errors(self.folder):
            handle, name = tempfile.mkstemp(dir=self.folder)
            path = Path(name)
            try:
                with os.fdopen(handle, "wb") as file:
                    yield Upload(file, path, max_bytes=self.max_bytes)
            finally:
                path.unlink(missing_ok=True)

    @contextmanager
    def keep(self, upload: Upload) -> Iterator[str]:
        """Yield the path of a whole video, which is there until the last request that needs it has ended."""
        kept = self.folder / f"{upload.finish()}.video"
        with self._lock:
            self._users[kept] += 1
            os.utime(upload.path, (0, 0))  # its version: that of all files with these bytes
            upload.path.replace(kept)
        try:
            yield str(kept)
        finally:
            with self._lock:
                self._users[kept] -= 1
                if not self._users[kept]:
                    del self._users[kept]
                    kept.unlink(missing_ok=True)


class Upload:
    """A video as it arrives."""

    def __init__(self, file: IO[bytes], path: Path, *, max_bytes: int) -> None:
        """Start with nothing; the file is closed by the caller."""
        self.path = path
        self._file, self._max_bytes = file, max_bytes
        self._size_bytes, self._hash = 0, hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Add bytes.

        Raises:
            RequestRefusedError: There are too many.
        """
        self._size_bytes += len(data)
        if self._size_bytes > self._max_bytes:
            raise _too_large(self._max_bytes)
        self._hash.update(data)
        self._file.write(data)

    def finish(self) -> str:
        """End it; return the SHA-256 of its bytes."""
        self._file.close()
        return self._hash.hexdigest()


@asynccontextmanager
async def read_body(
    request: Request, model: type[RequestT], uploads: Uploads, *, idle_s: float
) -> AsyncIterator[tuple[RequestT, str | None]]:
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
        data = bytearray()

        def write(chunk: bytes) -> int:
            data.extend(chunk)
            if len(data) > MAX_JSON_BYTES:
                raise RequestRefusedError(
                    f"The body is larger than {MAX_JSON_BYTES:,} bytes; upload the video as a form.",
                    code="body_too_large",
                    status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                )
            return len(chunk)

        await _read(request, write, idle_s=idle_s)
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
        raise _too_large(upload_bytes)


def _too_large(max_bytes: int) -> RequestRefusedError:
    return RequestRefusedError(
        f"The upload is larger than {max_bytes // _MIB:,} MiB; cut the video, raise serve.max_upload_mib, or send its "
        "URI instead.",
        code="upload_too_large",
        status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    )


async def _read(request: Request, take: Callable[[bytes], int], *, idle_s: float) -> None:
    """Read a body; `take` gets what has arrived, and returns how many bytes of it belong to a field."""
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
                "Timed out while reading the request body; send it at once.",
                code="request_timeout",
                status=HTTPStatus.REQUEST_TIMEOUT,
            ) from None
        left_s -= time.monotonic() - began_s  # only waiting counts, not the time that `take` needs
        left_s = min(idle_s, left_s + take(chunk) / _LEAST_BYTES_PER_S)


def _validate(model: type[RequestT], data: bytes) -> RequestT:
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


class _Form:
    """A form with one video, written to its upload as it arrives, and one field of JSON."""

    def __init__(self, boundary: bytes, upload: Upload) -> None:
        self._upload = upload
        self._json, self._header, self._value = bytearray(), bytearray(), bytearray()
        self._seen: list[str] = []
        self._name, self._is_whole = "", False
        self._bytes = self._fields_bytes = 0
        if not boundary:
            self._refuse("it names no boundary")
        try:
            self._parser = MultipartParser(
                boundary,
                callbacks={
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
            RequestRefusedError: A part is missing, or the end.
        """
        missing = [name for name in (_REQUEST, _VIDEO) if name not in self._seen]
        if not self._is_whole or missing:
            self._refuse(f"{' and '.join(missing)} is missing" if missing else "its end is missing")
        return bytes(self._json)

    def _end_header(self) -> None:
        if self._header.lower() == b"content-disposition":
            _, options = parse_options_header(bytes(self._value))
            self._name = options.get(b"name", b"").decode(errors="replace")
        self._header.clear()
        self._value.clear()

    def _end_headers(self) -> None:
        name, self._seen = self._name, [*self._seen, self._name]
        if name not in {_REQUEST, _VIDEO}:
            self._refuse(f"unknown field {name!r}")
        if self._seen.count(name) > 1:
            self._refuse(f"{name} is there twice")

    def _take(self, data: bytes, start: int, end: int) -> None:
        self._fields_bytes += end - start
        if self._name == _VIDEO:
            self._upload.write(data[start:end])
            return
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
