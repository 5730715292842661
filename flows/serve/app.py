"""The application: what every route shares, and the routes that say how the service is."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal

from fastapi import FastAPI, Request, Response
from pydantic import Field
from starlette.middleware.cors import CORSMiddleware

from flows.serve.admission import Admission
from flows.serve.answers import Answered, explain_errors
from flows.serve.docs_page import POLICY, docs_page
from flows.serve.guard import OPEN_PATHS, Guard
from flows.serve.uploads import Uploads
from infra.telemetry import metrics_page
from reelabel.temporary import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fastapi import APIRouter

    from infra.settings import Settings

_MIB = 1024**2


@dataclass(slots=True, kw_only=True)
class Service:
    """What the routes of one service share; see `service_of`.

    Attributes:
        settings: With the addresses of the services behind.
        admission: Places of single requests.
        threads: One for each place.
        uploads: Where uploaded videos are.
    """

    settings: Settings = field(repr=False)
    admission: Admission
    threads: Executor
    uploads: Uploads


class Health(Answered):
    """How the service is."""

    status: Literal["ok"] = "ok"
    version: str = Field(description="Version of Reelabel.")
    requests: int = Field(description="Requests in work.")
    places: int = Field(description="Most requests in work at the same time.")


@contextmanager
def open_service(settings: Settings) -> Iterator[Service]:
    """Yield what the routes share, with all places free.

    Raises:
        DiskFullError: There is no space for uploads.
    """
    serve = settings.serve
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder("upload"))
        threads = ThreadPoolExecutor(serve.max_requests, thread_name_prefix="request")
        stack.callback(threads.shutdown, wait=False, cancel_futures=True)
        yield Service(
            settings=settings,
            admission=Admission(serve.max_requests),
            threads=threads,
            uploads=Uploads(folder, max_bytes=serve.max_upload_mib * _MIB),
        )


def make_app(
    service: Service, routers: Sequence[APIRouter] = (), *, open_paths: frozenset[str] = frozenset()
) -> FastAPI:
    """Make the application.

    Args:
        service: What the routes share.
        routers: The routes.
        open_paths: Paths of these that need no token, such as a page that asks for it.
    """
    settings = service.settings.serve
    app = FastAPI(title="Reelabel", version=version("reelabel"), docs_url=None, redoc_url=None)
    app.state.service = service
    explain_errors(app)
    app.add_api_route("/health", _health, response_model=Health, summary="Say that the service answers")
    app.add_api_route("/metrics", _metrics, response_class=Response, summary="Metrics in Prometheus' text format")
    app.add_api_route("/docs", _docs, include_in_schema=False)
    for router in routers:
        app.include_router(router)
    app.add_middleware(Guard, settings=settings, open_paths=OPEN_PATHS | open_paths)
    if settings.origins:  # outside of the guard: a browser asks without a token whether it may ask
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app


def service_of(request: Request) -> Service:
    """Return what the routes share."""
    found: Service = request.app.state.service
    return found


async def _health(request: Request) -> Health:
    admission = service_of(request).admission
    return Health(version=version("reelabel"), requests=admission.taken, places=admission.places)


async def _docs(request: Request) -> Response:
    page = docs_page(request.app.openapi())
    return Response(page, media_type="text/html", headers={"Content-Security-Policy": POLICY})


def _metrics() -> Response:
    text, media_type = metrics_page()
    return Response(text, media_type=media_type)
