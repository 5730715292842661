"""Reads the body of a request: JSON, or a form with the JSON and a video, stored while requests need it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, asynccontextmanager, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from flows.serve.errors import RequestError, invalid, invalid_request
from infra.validation import too_intricate, too_many_faults
from reelabel.disk import disk_errors, temporary_root

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.types import Message

RequestT = TypeVar("RequestT", bound=BaseModel)

# Enough for a job's texts; a video embedded in a URI should be uploaded instead.
MAX_JSON_BYTES = 16 * 1024**2
_MIB = 1024**2
# Overhead of a form besides its fields.
_FORM_OVERHEAD_BYTES = 64 * 1024
# A client that sends more slowly wastes its slot, like one that sends nothing.
_MIN_BYTES_PER_S = 1024
_MAX_DIGITS = 18
_VIDEO, _REQUEST = "video", "request"


class Uploads:
    """The uploaded videos of one service: files of a temporary folder, named by their content. Thread-safe.

    Identical bytes are the same file with the same version, so that their frames are found in the cache.
    """

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self.folder, self.max_bytes = folder, max_bytes
        self._users = Counter[Path]()
        self._lock = threading.Lock()

    @contextmanager
    def keep(self, video: IO[bytes]) -> Iterator[str]:
        """Copy a video; yield the path of its file, which is removed when its last request ends.

        Raises:
            DiskFullError: There is no space for it.
        """
        with disk_errors(self.folder):
            handle, copy = tempfile.mkstemp(dir=self.folder)
            try:
                with os.fdopen(handle, "w+b") as file:
                    shutil.copyfileobj(video, file, _MIB)
                    file.seek(0)
                    path = self.folder / f"{hashlib.file_digest(file, 'sha256').hexdigest()}.video"
                os.utime(copy, (0, 0))  # its version is that of all files with these bytes
                with self._lock:
                    self._users[path] += 1
                    Path(copy).replace(path)
            finally:
                Path(copy).unlink(missing_ok=True)
        try:
            yield str(path)
        finally:
            with self._lock:
                self._users[path] -= 1
                if not self._users[path]:
                    del self._users[path]
                    path.unlink(missing_ok=True)


@asynccontextmanager
async def read_body(
    request: Request, model: type[RequestT], uploads: Uploads, *, idle_s: float
) -> AsyncIterator[tuple[RequestT, str | None]]:
    """Read and validate a body; yield it with the path of its video, if one was uploaded.

    A client may be waited for during `idle_s` seconds in all; each KiB that arrives gives one back.

    Raises:
        RequestError: It is too large, too slow, neither JSON nor a form, or invalid.
        ClientDisconnect: The client has disconnected.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        too_large = RequestError(
            f"The upload is larger than {uploads.max_bytes // _MIB:,} MiB; cut the video, raise serve.max_upload_mib, "
            "or send its URI instead.",
            code="upload_too_large",
            status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        )
        limit = uploads.max_bytes + MAX_JSON_BYTES + _FORM_OVERHEAD_BYTES
        stated = request.headers.get("content-length", "")
        if stated.isdecimal() and int(stated[:_MAX_DIGITS]) > limit:
            raise too_large
        limited = _limited(request, limit, too_large, idle_s=idle_s)
        with ExitStack() as stack:
            async with _form(limited) as form:
                json, video = _fields(form)
                if (video.size or 0) > uploads.max_bytes:
                    raise too_large
                body = _validate(model, json.encode())
                path = await run_in_threadpool(stack.enter_context, uploads.keep(video.file))
            yield body, path
    elif kind in {"application/json", ""}:
        too_large = RequestError(
            f"The body is larger than {MAX_JSON_BYTES:,} bytes; upload the video as a form.",
            code="body_too_large",
            status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        )
        limited = _limited(request, MAX_JSON_BYTES, too_large, idle_s=idle_s)
        yield _validate(model, await limited.body()), None
    else:
        raise RequestError(
            f"The body is {kind!r}; send application/json, or multipart/form-data with the fields {_REQUEST} (JSON) "
            f"and {_VIDEO}.",
            code="unsupported_media_type",
            status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        )


def _limited(request: Request, max_bytes: int, too_large: RequestError, *, idle_s: float) -> Request:
    """Return a request that raises an error once its body is too large or its client too slow."""
    left_s, size_bytes = idle_s, 0

    async def receive() -> Message:
        nonlocal left_s, size_bytes
        began_s = time.monotonic()
        try:
            message = await asyncio.wait_for(request.receive(), left_s)
        except TimeoutError:
            raise RequestError(
                "Timed out while reading the request body; send it at once.",
                code="request_timeout",
                status=HTTPStatus.REQUEST_TIMEOUT,
            ) from None
        received = len(message.get("body", b""))
        left_s -= time.monotonic() - began_s  # only waiting counts, not parsing
        left_s = min(idle_s, left_s + received / _MIN_BYTES_PER_S)
        size_bytes += received
        if size_bytes > max_bytes:
            raise too_large
        return message

    return Request(request.scope, receive)


@asynccontextmanager
async def _form(request: Request) -> AsyncIterator[FormData]:
    """Parse a form; a large file is in a temporary file, which is removed at the end."""
    _, options = parse_options_header(request.headers["content-type"])
    # Python would decode the JSON by any of its codecs, some of which fail in odd ways, or take hours.
    if (charset := options.get(b"charset", b"utf-8").decode("latin-1")).lower() not in {"utf-8", "utf8"}:
        raise _invalid_form(f"its charset is {charset!r}, not utf-8")
    with disk_errors(temporary_root()):
        try:
            form = await request.form(max_files=1, max_fields=1, max_part_size=MAX_JSON_BYTES)
        except HTTPException as error:
            raise _invalid_form(error.detail) from None
        try:
            yield form
        finally:
            await form.close()


def _fields(form: FormData) -> tuple[str, UploadFile]:
    if unknown := form.keys() - {_REQUEST, _VIDEO}:
        raise _invalid_form(f"unknown field {min(unknown)!r}")
    if missing := [name for name in (_REQUEST, _VIDEO) if name not in form]:
        raise _invalid_form(f"{' and '.join(missing)} is missing")
    json, video = form[_REQUEST], form[_VIDEO]
    if not isinstance(json, str) or not isinstance(video, UploadFile):
        raise _invalid_form(f"{_VIDEO} is no file, or {_REQUEST} is one")
    return json, video


def _validate(model: type[RequestT], data: bytes) -> RequestT:
    if why := too_intricate(data):
        raise _invalid(why)
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        if why := too_many_faults(error):
            raise _invalid(why) from None
        raise invalid_request(error.errors()) from None


def _invalid(why: str) -> RequestError:
    return invalid(f"The body {why}; see /openapi.json.")


def _invalid_form(why: str) -> RequestError:
    return RequestError(
        f"The form cannot be read: {why.rstrip('.')}. It has the fields {_REQUEST} (JSON) and {_VIDEO} (a file).",
        code="invalid_form",
        status=HTTPStatus.BAD_REQUEST,
    )
