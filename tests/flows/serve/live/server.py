"""The application with live sessions and a scripted model, on a port of its own, in this process."""

import socket
import threading
from contextlib import contextmanager

import uvicorn

from flows.serve.app import make_app
from flows.serve.live.page import OPEN_PATHS, page_router
from flows.serve.live.socket import live_router, make_sessions
from flows.serve.requests.handle import open_service
from infra.settings import Settings
from reelabel.pool.decode_pool import DecodePool
from tests.live.scripted_model import INFO, ScriptedModel

_START_S = 60


class LiveServer:
    """A running server; `drop` cuts its clients' connections, as a network does."""

    def __init__(self, url, model, server):
        self.url, self.model, self._server = url, model, server

    @property
    def has_connections(self):
        return bool(self._server.server_state.connections)

    def drop(self):
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()

    def end(self):
        """Stop like a killed process: the port is closed, and no client is notified."""
        for listener in self._server.servers:
            listener.close()
        self.drop()


@contextmanager
def live_server(**options):
    """Serve; end at the end. Options are those of `make_sessions`, `settings`, and facts of the model."""
    settings, model = options.pop("settings", None) or Settings(), ScriptedModel()
    info = options.pop("info", INFO)
    with (
        DecodePool(processes=1) as pool,
        open_service(settings) as service,
        socket.socket() as opened,
    ):
        sessions = make_sessions(settings, model=model, info=info, pool=pool, **options)
        opened.bind(("127.0.0.1", 0))
        routers = [
            live_router(sessions),
            page_router(info, needs_token=settings.serve.token is not None),
        ]
        app = make_app(service, routers, open_paths=OPEN_PATHS)
        server = uvicorn.Server(uvicorn.Config(app, loop="asyncio", log_config=None, timeout_graceful_shutdown=2))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
        thread.start()
        for _ in range(_START_S * 100):
            if server.started:
                break
            threading.Event().wait(0.01)
        yield LiveServer(f"http://127.0.0.1:{opened.getsockname()[1]}", model, server)
        server.should_exit = True
        thread.join(10)
