"""`reelabel serve`."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from flows.cli.console import OUT, print_notice
from flows.cli.context import running_services, startup_errors
from infra.checks import probe_store
from infra.embedded import ServiceName
from infra.interrupts import EXIT_CODE
from infra.telemetry import start_metrics
from tasks.database.schema import prepare_database

if TYPE_CHECKING:
    from infra.settings import Settings


def run_server(**options: Any) -> int:  # noqa: ANN401 - of the section `serve`
    """Serve until a signal; return the exit code."""
    with running_services(ServiceName.POSTGRES, ServiceName.S3) as started:
        settings = _with_options(started, options)
        with startup_errors():
            prepare_database(settings.database)
            probe_store(settings.store)
        from flows.serve.app import make_app, make_service  # noqa: PLC0415 - FastAPI takes half a second to import
        from flows.serve.server import listen, serve, url_of  # noqa: PLC0415

        with listen(settings.serve) as opened:
            start_metrics(settings.metrics, page=True)
            app = make_app(make_service(settings))

            def say_where() -> None:
                print_notice(f"Serving at {url_of(opened)}; Ctrl-C ends it.", console=OUT)

            ended_by = serve(app, opened, settings.serve, ready=say_where)
    print_notice("Stopped.", console=OUT)
    return EXIT_CODE if ended_by == signal.SIGINT else 0


def _with_options(settings: Settings, options: dict[str, Any]) -> Settings:
    given = {name: value for name, value in options.items() if value is not None}
    return settings.model_copy(update={"serve": settings.serve.model_copy(update=given)})
