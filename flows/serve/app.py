"""The application: middleware shared by all routes, and the routes for health and metrics."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Literal

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from starlette.middleware.cors import CORSMiddleware

from flows.serve.errors import add_error_handlers
from flows.serve.guard import OPEN_PATHS, Guard
from flows.serve.requests.handle import service_of
from infra.telemetry import metrics_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastapi import APIRouter

    from flows.serve.requests.handle import Service


class Health(BaseModel):
    """Health of the service."""

    model_config = ConfigDict(extra="forbid")

    status: Literal["ok"] = Field(
        default="ok", description="Always `ok`; while models load, the answer is 503 with the status `loading`."
    )
    version: str = Field(description="Version of Reelabel.")
    requests: int = Field(description="Requests in progress.")
    slots: int = Field(description="Maximum requests in progress at the same time.")


def make_app(
    service: Service, routers: Sequence[APIRouter] = (), *, open_paths: frozenset[str] = frozenset()
) -> FastAPI:
    """Create the application; `open_paths` need no token, such as a page that asks for it."""
    settings = service.settings.serve
    app = FastAPI(title="Reelabel", version=version("reelabel"), redoc_url=None)
    # So that generated clients send it; the guard checks it before anything is read.
    needs_token = [Depends(HTTPBearer(scheme_name="token", auto_error=False))] if settings.token else []
    app.state.service = service
    add_error_handlers(app)
    app.add_api_route(
        "/health", _health, operation_id="health", response_model=Health, summary="Check that the service is up"
    )
    app.add_api_route("/health", _health, methods=["HEAD"], include_in_schema=False)
    app.add_api_route(
        "/metrics",
        _metrics,
        operation_id="metrics",
        response_class=PlainTextResponse,
        dependencies=needs_token,
        summary="Metrics in Prometheus' text format",
    )
    for router in routers:
        app.include_router(router, dependencies=needs_token)
    app.add_middleware(Guard, settings=settings, open_paths=OPEN_PATHS | open_paths)
    if settings.origins:  # outside the guard: browsers send CORS preflight requests without a token
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app


async def _health(request: Request) -> Health:
    slots = service_of(request).slots
    return Health(version=version("reelabel"), requests=slots.taken, slots=slots.limit)


def _metrics() -> Response:
    text, media_type = metrics_page()
    return Response(text, media_type=media_type)
