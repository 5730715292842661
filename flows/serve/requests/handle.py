"""Handles a single request from its first byte to its answer: slot, body, and work in a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from fastapi import APIRouter, Request
from opentelemetry import metrics
from pydantic import BaseModel, ConfigDict, Field

from flows.serve.errors import GONE, ClientGoneError, ErrorBody, RequestError
from flows.serve.requests.body import Uploads, read_body
from infra.temporary import temporary_folder
from reelabel.errors import ReelabelError
from reelabel.waiting import AbandonedError, working_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from infra.settings import Settings

RequestT = TypeVar("RequestT", bound=BaseModel)
Answer = TypeVar("Answer", bound=BaseModel)
Result = TypeVar("Result")
# Takes the JSON, and the path of the uploaded video, if any.
Work: TypeAlias = Callable[[RequestT, str | None], Answer]

_MIB = 1024**2
_RESTART_S = 10.0
_WORK_S = 600.0  # proxies and clients give up earlier; longer work is for runs
_MAX_RETRY_S = 60.0
_USUAL_WEIGHT = 0.1  # weight of the last request in the usual duration
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)

_METER = metrics.get_meter("reelabel")
_requests = _METER.create_counter("reelabel.requests", "{request}", "Finished requests, by route and outcome.")
_durations = _METER.create_histogram(
    "reelabel.request.duration",
    "s",
    "Seconds from the first byte of a request to its answer, by route.",
    explicit_bucket_boundaries_advisory=_SECONDS,
)
_in_progress = _METER.create_up_down_counter(
    "reelabel.requests.under_way", "{request}", "Requests in progress, by route."
)


def count_request(route: str, outcome: str, took_s: float) -> None:
    """Count a finished request; its outcome is `answered`, `cancelled`, or the code of its error."""
    _requests.add(1, {"route": route, "outcome": outcome})
    _durations.record(took_s, {"route": route})


class RequestSlots:
    """A limit on concurrent requests; others are refused at once, with the time after which to retry.

    For use in one event loop.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.taken = limit, 0
        self._usual_s = 1.0

    @contextmanager
    def acquire(self, route: str) -> Iterator[None]:
        """Hold a slot, and count the request in the metrics of its route.

        Raises:
            RequestError: All are taken; the code is `busy`.
        """
        if self.taken >= self.limit:
            _requests.add(1, {"route": route, "outcome": "busy"})
            raise RequestError(
                f"Too many concurrent requests (limit {self.limit}); see Retry-After.",
                code="busy",
                status=HTTPStatus.TOO_MANY_REQUESTS,
                retry_after_s=min(_MAX_RETRY_S, max(1.0, self._usual_s)),
            )
        self.taken += 1
        began_s, outcome = time.monotonic(), "answered"
        _in_progress.add(1, {"route": route})
        try:
            yield
        except ReelabelError as error:
            outcome = error.code
            raise
        except BaseException as error:
            outcome = "cancelled" if isinstance(error, GONE) else "internal"
            raise
        finally:
            took_s = time.monotonic() - began_s
            self.taken -= 1
            self._usual_s += _USUAL_WEIGHT * (took_s - self._usual_s)
            _in_progress.add(-1, {"route": route})
            count_request(route, outcome, took_s)


@dataclass(slots=True, kw_only=True)
class Service:
    """The state shared by the routes of one service."""

    settings: Settings = field(repr=False)
    slots: RequestSlots
    threads: Executor  # one per slot
    uploads: Uploads


@contextmanager
def open_service(settings: Settings) -> Iterator[Service]:
    """Yield the state of a service. Raises `DiskFullError` if there is no space for uploads."""
    serve = settings.serve
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder("upload"))
        threads = ThreadPoolExecutor(serve.max_requests, thread_name_prefix="request")
        stack.callback(threads.shutdown, wait=False, cancel_futures=True)
        yield Service(
            settings=settings,
            slots=RequestSlots(serve.max_requests),
            threads=threads,
            uploads=Uploads(folder, max_bytes=serve.max_upload_mib * _MIB),
        )


def service_of(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


async def handle(request: Request, route: str, model: type[RequestT], work: Work[RequestT, Answer]) -> Answer:
    """Answer a request in a slot: read its body as `model`, and work in a thread.

    Raises:
        RequestError: There is no slot, the body is invalid, it takes too long, or the service stops.
        ClientGoneError: The client has disconnected.
    """
    service = service_of(request)
    serve = service.settings.serve
    with service.slots.acquire(route):
        try:
            async with read_body(request, model, service.uploads, idle_s=serve.idle_timeout_s) as (body, upload):
                do = partial(work, body, upload)
                return await run_cancellable(request, service.threads, do, timeout_s=_WORK_S)
        except asyncio.CancelledError:
            raise RequestError(
                "The service is stopping; see Retry-After.",
                code="stopping",
                status=HTTPStatus.SERVICE_UNAVAILABLE,
                retry_after_s=_RESTART_S,
            ) from None


async def run_cancellable(
    request: Request, threads: Executor, work: Callable[[], Result], *, timeout_s: float
) -> Result:
    """Work in a thread; cancel the work if its client disconnects, or its time is over.

    Returns only when the work has ended, which cancelled work does where it next waits: only then is its slot free.

    Raises:
        RequestError: It took longer.
        ClientGoneError: The client has disconnected.
    """
    is_over = threading.Event()

    def run() -> Result | None:
        with working_until(is_over.is_set):
            try:
                return work()
            except AbandonedError:
                return None

    working = asyncio.get_running_loop().run_in_executor(threads, run)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        either: list[asyncio.Future[Any]] = [working, gone]
        await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        has_gone = gone.done() and not working.done()
        is_over.set()
        answer = await working
    finally:
        is_over.set()  # also if the service stops before the work ends
        gone.cancel()
    if has_gone:
        raise ClientGoneError
    if answer is None:
        raise RequestError(
            f"The request took longer than {timeout_s:g} seconds; cut the video, or ask for fewer chunks.",
            code="deadline_exceeded",
            status=HTTPStatus.GATEWAY_TIMEOUT,
        )
    return answer


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


_ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": description}
    for status, description in {
        400: "The form is damaged.",
        401: "The token is missing or wrong.",
        403: "The request comes from a page of another site.",
        408: "Timed out while reading the body.",
        413: "The body or the upload is too large.",
        415: "The body is neither JSON nor a form.",
        421: "The Host header is not loopback's.",
        422: "The request is invalid, or its video cannot be used.",
        429: "Too many concurrent requests; see Retry-After.",
        500: "The service failed; its log says why.",
        503: "The store or the engine is unavailable; see Retry-After.",
        504: "The request took longer than ten minutes.",
    }.items()
}

FramesUsed: TypeAlias = Annotated[int, Field(description="Number of distinct frames shown to the model.")]
DecodeMethod: TypeAlias = Annotated[str, Field(description="How frames were located: index, seek or linear.")]
DecodeNote: TypeAlias = Annotated[
    str, Field(description="Why no faster method was used, and what was truncated or omitted; otherwise empty.")
]
SourceFingerprint: TypeAlias = Annotated[str, Field(description="Version of the video.")]


class ResponseModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


def request_router(
    name: str,
    model: type[RequestT],
    answer: type[Answer],
    work: Work[RequestT, Answer],
    *,
    summary: str,
    description: str,
) -> APIRouter:
    """Return the route `/v1/NAME`: a form or JSON in, JSON out."""
    router = APIRouter(tags=["requests"])

    async def respond(request: Request) -> Answer:
        return await handle(request, name, model, work)

    router.add_api_route(
        f"/v1/{name}",
        respond,
        methods=["POST"],
        name=name,
        operation_id=name,
        response_model=answer,
        responses=_ERROR_RESPONSES,
        summary=summary,
        description=description,
        openapi_extra=_body_schema(model),
    )
    return router


def _body_schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    form = {
        "type": "object",
        "required": ["request", "video"],
        "properties": {
            "request": {"type": "string", "contentMediaType": "application/json", "contentSchema": schema},
            "video": {"type": "string", "format": "binary"},
        },
        "additionalProperties": False,
    }
    named = schema | {"required": [*schema.get("required", ()), "video_uri"]}
    content = {"application/json": {"schema": named}, "multipart/form-data": {"schema": form}}
    return {"requestBody": {"required": True, "content": content}}


def with_unattributed(stage_ms: Mapping[str, float], total_ms: float) -> dict[str, float]:
    """Add the milliseconds that belong to no stage, as `other`."""
    return {**stage_ms, "other": max(0.0, total_ms - sum(stage_ms.values()))}
