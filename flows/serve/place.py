"""A single request from its first byte to its answer: a place, the body, and the work in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel

from flows.serve.app import service_of
from flows.serve.body import read_body
from flows.serve.work import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

Asked = TypeVar("Asked", bound=BaseModel)
Answer = TypeVar("Answer", bound=BaseModel)


async def answer_in_place(
    request: Request,
    route: str,
    model: type[Asked],
    work: Callable[[Asked, str | None, Callable[[], None]], Answer],
) -> Answer:
    """Answer a request in a place of its own.

    Args:
        request: The request.
        route: What it asks for, in the metrics.
        model: What its JSON must be.
        work: Given the JSON, the path of the uploaded video if there is one, and a function to call between its
            stages.

    Raises:
        RequestRefusedError: There is no place, or the body is at fault.
        ClientGoneError: The client has gone.
    """
    service = service_of(request)
    with service.admission.place(route):
        async with read_body(request, model, service.uploads, idle_s=service.settings.serve.idle_timeout_s) as (
            asked,
            upload,
        ):
            return await in_thread(request, service.threads, lambda go_on: work(asked, upload, go_on))
