"""`reelabel serve`."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import Annotated

import typer

from flows.cli.console import ERRORS, OUT, print_notice
from flows.cli.context import running_services, startup_errors
from flows.cli.options import example
from infra import signals
from infra.doctor import probe_store
from infra.embedded import ServiceName
from infra.telemetry import start_telemetry
from tasks.database.schema import prepare_database

_PATHS = {"classify": "/v1/classify", "analyze": "/v1/analyze", "live": "/v1/video/chat/stream"}


@example("reelabel serve --port 8020")
def serve(
    *,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: serve.host, 127.0.0.1.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes a free one. Default: serve.port.")
    ] = None,
    without_token: Annotated[
        bool | None,
        typer.Option(
            "--without-token",
            help="Accept requests from anyone who can reach the address. Default: serve.without_token.",
        ),
    ] = None,
) -> None:
    """Answer single requests and live sessions over HTTP until Ctrl-C."""
    options = {"host": host, "port": port, "without_token": without_token}
    overrides = {name: value for name, value in options.items() if value is not None}
    with running_services(ServiceName.POSTGRES, ServiceName.S3) as started:
        settings = started.model_copy(update={"serve": started.serve.model_copy(update=overrides)})
        with startup_errors():
            prepare_database(settings.database)
            probe_store(settings.store)
        from flows.serve.app import make_app  # noqa: PLC0415 - FastAPI takes half a second to import
        from flows.serve.engines import open_engines  # noqa: PLC0415
        from flows.serve.live import page  # noqa: PLC0415
        from flows.serve.requests.handle import open_service  # noqa: PLC0415
        from flows.serve.server import answering_loading, reserve, url_of  # noqa: PLC0415
        from flows.serve.server import serve as serve_until_signal  # noqa: PLC0415

        with ExitStack() as stack:
            opened = stack.enter_context(reserve(settings.serve))
            start_telemetry(settings.metrics, page=True)
            service = stack.enter_context(open_service(settings))
            loading = ERRORS.status(f"Loading the models of {' and '.join(settings.serve.load)}")
            with loading, answering_loading(opened, settings.serve):
                answering = stack.enter_context(open_engines(settings, uploads=service.uploads.folder))
            service_app = make_app(service, answering.routers, open_paths=page.OPEN_PATHS)
            answers = ", ".join(_PATHS[name] for name in settings.serve.load)

            def print_address() -> None:
                print_notice(f"Answering {answers} at {url_of(opened)}; stop it with Ctrl-C.", console=OUT)
                if "live" in settings.serve.load:
                    print_notice(f"Camera page: {url_of(opened)}{page.PATH}", console=OUT)

            signals.allow(settings.serve.stop_timeout_s + signals.GRACE_S)
            ended_by = serve_until_signal(
                service_app, opened, settings.serve, ready=print_address, end_sessions=answering.end_sessions
            )
    print_notice("Stopped.", console=OUT)
    raise typer.Exit(signals.EXIT_CODE if ended_by == signal.SIGINT else 0)
