"""Error responses: every error is an object with a code and a message."""

from __future__ import annotations

import logging
import math
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from infra.validation import describe_fault
from reelabel.errors import JobError, ReelabelError, TransientError
from reelabel.text import escape_controls

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fastapi import FastAPI, Request
    from pydantic_core import ErrorDetails

_LOG = logging.getLogger("reelabel")
_RETRY_AFTER_S = 5.0
_CLIENT_GONE = 499  # nginx's code; no client reads it


class ClientGoneError(Exception):
    """The client has disconnected."""


GONE = (ClientGoneError, ClientDisconnect)


class ErrorBody(BaseModel):
    """Why a request was not answered."""

    model_config = ConfigDict(extra="forbid")

    code: str = Field(description="Stable identifier, such as video_missing or busy.")
    message: str = Field(description="What is wrong, where, and what to do about it.")


class RequestError(ReelabelError):
    """The request is invalid, or cannot be taken now.

    Attributes:
        status: HTTP status.
        retry_after_s: Seconds after which to try again; None if that would not help.
    """

    def __init__(self, message: str, *, code: str, status: HTTPStatus, retry_after_s: float | None = None) -> None:
        """Store the code and the message of the response."""
        super().__init__(message)
        self.code = code  # type: ignore[misc]  # of this refusal, not of the class
        self.status = status
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[Any, ...]:
        """Preserve the options when pickled."""
        make = partial(type(self), code=self.code, status=self.status, retry_after_s=self.retry_after_s)
        return make, (self.message,)


def error_response(code: str, message: str, status: HTTPStatus, *, retry_after_s: float | None = None) -> JSONResponse:
    """Return the error response to a refused request."""
    headers = {} if retry_after_s is None else {"Retry-After": str(math.ceil(retry_after_s))}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    refusal = ErrorBody(code=code, message=escape_controls(message))
    return JSONResponse(refusal.model_dump(), status_code=status, headers=headers)


def error_response_to(error: Exception) -> JSONResponse:
    """Return the error response to a request that failed with an error; log internal errors for the operator."""
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
        case _:
            return error_response(
                "internal", "The service failed on this request; its log says why.", HTTPStatus.INTERNAL_SERVER_ERROR
            )


def invalid(message: str) -> RequestError:
    """Return the error of a request that violates a rule, named in the message."""
    return RequestError(message, code="invalid_request", status=HTTPStatus.UNPROCESSABLE_ENTITY)


def invalid_request(faults: Iterable[ErrorDetails]) -> RequestError:
    """Return the error of a request with invalid fields; the message names each."""
    return invalid(f"{'; '.join(map(_clause, faults))}.")


def _clause(fault: ErrorDetails) -> str:
    if fault["type"] in {"json_invalid", "json_type"}:
        return f"The body is not valid JSON ({fault.get('ctx', {}).get('error', 'no object')})"
    where = ".".join(str(part) for part in fault["loc"] if part != "body")
    clause = describe_fault(fault, {"extra_forbidden": "unknown field"})
    return f"{where or 'The body'}: {clause}" if where else f"The body {clause}"


def add_error_handlers(app: FastAPI) -> None:
    """Make an application answer every error with a code and a message."""

    # Coroutines, because functions would run in threads, for which there is no time when the service stops.
    async def answer(_request: Request, error: Exception) -> JSONResponse:
        return error_response_to(error)

    async def answer_invalid(_request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError | ValidationError)
        return error_response_to(invalid_request(error.errors()))

    async def answer_http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return _of_http(request, error)

    app.add_exception_handler(ReelabelError, answer)
    for gone in GONE:
        app.add_exception_handler(gone, _of_nobody)
    app.add_exception_handler(RequestValidationError, answer_invalid)
    app.add_exception_handler(HTTPException, answer_http)
    app.add_exception_handler(Exception, answer)


async def _of_nobody(_request: Request, _error: Exception) -> Response:
    """Answer a client that has disconnected, for the record."""
    return Response(status_code=_CLIENT_GONE)


def _of_http(request: Request, error: HTTPException) -> JSONResponse:
    """Answer requests that the router itself refuses."""
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
