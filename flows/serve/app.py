"""The application: what every route shares, and the routes that say how the service is."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, Field
from starlette.middleware.cors import CORSMiddleware

from flows.serve.admission import Admission
from flows.serve.answers import explain_errors
from flows.serve.guard import OPEN_PATHS, Guard
from infra.telemetry import metrics_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastapi import APIRouter

    from infra.settings import Settings


@dataclass(slots=True, kw_only=True)
class Service:
    """What the routes of one service share; `request.app.state.service`.

    Attributes:
        settings: With the addresses of the services behind.
        admission: Places of single requests.
    """

    settings: Settings = field(repr=False)
    admission: Admission


class Health(BaseModel):
    """How the service is."""

    status: Literal["ok"] = "ok"
    version: str = Field(description="Version of Reelabel.")
    requests: int = Field(description="Requests in work.")
    places: int = Field(description="Most requests in work at the same time.")


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
    """Return what the routes share; a dependency."""
    found: Service = request.app.state.service
    return found


async def _health(request: Request) -> Health:
    admission = service_of(request).admission
    return Health(version=version("reelabel"), requests=admission.taken, places=admission.places)


def _metrics() -> Response:
    text, media_type = metrics_page()
    return Response(text, media_type=media_type)


def make_service(settings: Settings) -> Service:
    """Return what the routes share, with all places free."""
    return Service(settings=settings, admission=Admission(settings.serve.max_requests))
