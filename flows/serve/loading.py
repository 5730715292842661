"""What the service answers while its models load: that it does not answer yet."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http import HTTPStatus
from importlib.metadata import version
from typing import TYPE_CHECKING

import uvicorn
from starlette.responses import JSONResponse

from flows.serve.refusals import refuse
from flows.serve.server import listen

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from starlette.types import Receive, Scope, Send

    from infra.settings import ServeSettings

_END_S = 5.0


@contextmanager
def answering_loading(opened: socket.socket, settings: ServeSettings) -> Iterator[None]:
    """Answer all requests with 503, `/health` with the status `loading`; connections that come last wait for the next.

    Args:
        opened: Where to listen, as reserved; it stays open.
        settings: With the address.

    Raises:
        ConfigurationError: Another process has begun to listen there meanwhile.
    """
    listen(opened, settings)
    config = uvicorn.Config(
        _answer, loop="asyncio", ws="none", lifespan="off", log_config=None, access_log=False, server_header=False
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([opened.dup()],), name="loading", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = server.force_exit = True
        thread.join(_END_S)


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/health":
        answer = JSONResponse(
            {"status": "loading", "version": version("reelabel")},
            HTTPStatus.SERVICE_UNAVAILABLE,
            headers={"Retry-After": "1"},
        )
    else:
        answer = refuse("loading", "The models are being loaded; try again soon.", HTTPStatus.SERVICE_UNAVAILABLE)
    answer.headers["Connection"] = "close"
    await answer(scope, receive, send)
