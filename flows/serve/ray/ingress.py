"""The deployment that clients ask: the same application as that of one machine, without its models."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.serve.app import make_app
from flows.serve.ray.calls import call
from flows.serve.requests.analyze import analyze_router
from flows.serve.requests.classify import classify_router
from flows.serve.requests.route import with_rest
from flows.serve.requests.service import open_service
from infra.settings import load_settings
from infra.telemetry import start_metrics

if TYPE_CHECKING:
    from fastapi import FastAPI
    from pydantic import BaseModel


class Ingress:
    """The deployment that clients ask."""

    def __init__(self, decoder: Any) -> None:  # noqa: ANN401 - a handle
        """Open what the routes share.

        Args:
            decoder: Works requests out.

        Raises:
            DiskFullError: There is no space for uploads.
        """
        settings = load_settings()
        # Ray Serve listens, for others than this machine if so told: only the token decides who may ask.
        serve = settings.serve.model_copy(update={"host": "0.0.0.0"})  # noqa: S104
        start_metrics(settings.metrics, page=True)
        self._stack = ExitStack()
        self._service = self._stack.enter_context(open_service(settings.model_copy(update={"serve": serve})))
        self._decoder = decoder

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Return the application."""
        handle, load = self._decoder, self._service.settings.serve.load
        routers = []
        if "analyze" in load:
            routers.append(analyze_router(partial(_ask, handle.analyze)))
        if "classify" in load:
            routers.append(classify_router(partial(_ask, handle.classify)))
        return make_app(self._service, routers)

    def __del__(self) -> None:
        """Remove the uploads."""
        self._stack.close()


def _ask(method: Any, asked: BaseModel, upload: str | None) -> Any:  # noqa: ANN401
    """Have a request worked out; its time is counted here, with the way there and back."""
    began_s = time.perf_counter()
    video = Path(upload).read_bytes() if upload else None
    answer = call(method, asked, video)
    total_ms = (time.perf_counter() - began_s) * 1e3
    stage_ms = {name: ms for name, ms in answer.stage_ms.items() if name != "other"}
    return answer.model_copy(update={"stage_ms": with_rest(stage_ms, total_ms), "total_ms": total_ms})
