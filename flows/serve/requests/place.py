"""A single request from its first byte to its answer: a place, the body, and the work in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from pydantic import BaseModel

from flows.serve.refusals import RequestRefusedError
from flows.serve.requests.body import read_body
from flows.serve.requests.service import service_of
from flows.serve.requests.work import in_thread

if TYPE_CHECKING:
    from starlette.requests import Request

_RESTART_S = 10.0
Asked = TypeVar("Asked", bound=BaseModel)
Answer = TypeVar("Answer", bound=BaseModel)
# Given the JSON, and the path of the uploaded video if there is one.
Work: TypeAlias = Callable[[Asked, str | None], Answer]


async def answer_in_place(
    request: Request,
    route: str,
    model: type[Asked],
    work: Work[Asked, Answer],
) -> Answer:
    """Answer a request in a place of its own.

    Args:
        request: The request.
        route: What it asks for, in the metrics.
        model: What its JSON must be.
        work: What works it out.

    Raises:
        RequestRefusedError: There is no place, the body is at fault, or the service ends.
        ClientGoneError: The client has gone.
    """
    service = service_of(request)
    serve = service.settings.serve
    with service.admission.place(route):
        try:
            async with read_body(request, model, service.uploads, idle_s=serve.idle_timeout_s) as (asked, upload):
                do = partial(work, asked, upload)
                return await in_thread(request, service.threads, do, timeout_s=serve.request_timeout_s)
        except asyncio.CancelledError:
            raise RequestRefusedError(
                "The service is stopping; try again after the seconds in Retry-After.",
                code="stopping",
                status=HTTPStatus.SERVICE_UNAVAILABLE,
                retry_after_s=_RESTART_S,
            ) from None
