"""Error responses: every error is an object with a code and a message."""

from __future__ import annotations

import logging
import math
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from infra.validation import describe_fault
from reelabel.errors import JobError, ReelabelError, TransientError
from reelabel.text import escape_controls, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fastapi import FastAPI, Request
    from pydantic_core import ErrorDetails

_LOG = logging.getLogger("reelabel")
_RETRY_AFTER_S = 5.0
_CLIENT_GONE = 499  # nginx's code; no client reads it


class ClientGoneError(Exception): ...


GONE = (ClientGoneError, ClientDisconnect)


class ErrorBody(BaseModel):
    """Why a request was not answered."""

    model_config = ConfigDict(extra="forbid")

    code: str = Field(description="Stable identifier, such as video_missing or busy.")
    message: str = Field(description="What is wrong, where, and what to do about it.")


class RequestError(ReelabelError):
    """The request is invalid, or cannot be answered now.

    Attributes:
        status: HTTP status.
        retry_after_s: Seconds after which to try again; None if that would not help.
    """

    def __init__(self, message: str, *, code: str, status: HTTPStatus, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.code = code  # type: ignore[misc]  # of this error, not of the class
        self.status = status
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(type(self), code=self.code, status=self.status, retry_after_s=self.retry_after_s)
        return make, (self.message,)


def error_response(code: str, message: str, status: HTTPStatus, *, retry_after_s: float | None = None) -> JSONResponse:
    headers = {} if retry_after_s is None else {"Retry-After": str(math.ceil(retry_after_s))}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    body = ErrorBody(code=code, message=escape_controls(message))
    return JSONResponse(body.model_dump(), status_code=status, headers=headers)


def invalid(message: str) -> RequestError:
    return RequestError(message, code="invalid_request", status=HTTPStatus.UNPROCESSABLE_ENTITY)


def invalid_request(faults: Iterable[ErrorDetails]) -> RequestError:
    """Return an error that names each invalid field."""
    return invalid(f"{'; '.join(map(_clause, faults))}.")


def _clause(fault: ErrorDetails) -> str:
    if fault["type"] in {"json_invalid", "json_type"}:
        return f"The body is not valid JSON ({fault.get('ctx', {}).get('error', 'no object')})"
    where = ".".join(shorten(str(part)) for part in fault["loc"])  # a client's own fields are as long as it likes
    clause = describe_fault(fault, {"extra_forbidden": "unknown field"})
    return f"{where}: {clause}" if where else f"The body {clause}"


def add_error_handlers(app: FastAPI) -> None:
    """Make an application answer every error with a code and a message."""
    app.add_exception_handler(ReelabelError, _answer)
    for gone in GONE:
        app.add_exception_handler(gone, _answer_disconnected)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(Exception, _answer)


# Coroutines, because functions would run in threads, for which there is no time when the service stops.
async def _answer(_request: Request, error: Exception) -> JSONResponse:
    match error:
        case RequestError():
            return error_response(error.code, error.message, error.status, retry_after_s=error.retry_after_s)
        case JobError():
            return error_response(error.code, error.message, HTTPStatus.UNPROCESSABLE_ENTITY)
        case TransientError():
            _LOG.warning("%s", error.message)
            return error_response(
                error.code, error.message, HTTPStatus.SERVICE_UNAVAILABLE, retry_after_s=_RETRY_AFTER_S
            )
        case ReelabelError():
            _LOG.error("%s", error.message)
            return error_response(error.code, error.message, HTTPStatus.INTERNAL_SERVER_ERROR)
        case _:  # Starlette logs it
            return error_response(
                "internal", "The service failed on this request; its log says why.", HTTPStatus.INTERNAL_SERVER_ERROR
            )


async def _answer_disconnected(_request: Request, _error: Exception) -> Response:
    return Response(status_code=_CLIENT_GONE)  # for the record


async def _answer_http(request: Request, error: Exception) -> JSONResponse:
    """Answer requests that the router refuses."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    path = request.url.path
    messages: Mapping[HTTPStatus, str] = {
        HTTPStatus.NOT_FOUND: f"There is nothing at {path}; /docs and /openapi.json list all routes.",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{path} does not take {request.method}; see /openapi.json.",
    }
    code = status.phrase.lower().replace(" ", "_")
    answer = error_response(code, messages.get(status, f"{error.detail}."), status)
    answer.headers.update(error.headers or {})
    return answer
