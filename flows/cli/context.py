"""Contexts of commands: running services, Prefect's client, and an open database."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from flows.cli.console import ERRORS, print_notice
from flows.run.names import PREFECT_VARIABLES
from infra.database.connect import Role, connected
from infra.doctor import check_prefect, probe_store
from infra.embedded import (
    ServiceName,
    export,
    full_disk_behind,
    missing_services,
    running,
)
from infra.logs import PREFECT_JSON_LINES, log_as_json
from infra.settings import load_settings
from reelabel.errors import ConfigurationError, DiskFullError, TransientError
from reelabel.sources.object_info import redact_uri
from tasks.database.schema import check_schema, prepare_database
from tasks.results import runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from sqlalchemy import Engine, RowMapping

    from infra.settings import Settings


_DRAIN_TIMEOUT_S = 5
_AT_ONCE = {"PREFECT_CLIENT_MAX_RETRIES": "0"}
# Logs go to the Prefect server; the terminal shows our progress bar and summary instead.
_QUIET = {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL", "PREFECT_LOGGING_HANDLERS_DEBUG_LEVEL": "CRITICAL"}


@contextmanager
def prefect_ready(settings: Settings, *, patient: bool = True) -> Iterator[None]:
    """Configure Prefect's client, and turn what it raises into our errors.

    Prefect reads its environment when it is imported: import it inside this context, not before.

    Args:
        settings: With the server's address.
        patient: Retry for about a minute if the server is unavailable; otherwise fail at once.

    Raises:
        ConfigurationError: The API does not respond, or rejects a request.
        DiskFullError: It fails because its disk, that of the embedded services, is full.
    """
    found = check_prefect(settings)
    if not found.ok:
        error = ConfigurationError(f"Prefect at {found.detail}. {found.advice}")
        raise full_disk_behind(error, settings.home) or error
    _set_logging(settings)
    os.environ.update(export(settings) | (PREFECT_VARIABLES if patient else _AT_ONCE))
    import httpx  # noqa: PLC0415
    from prefect.context import refresh_global_settings_context  # noqa: PLC0415
    from prefect.events.worker import EventsWorker  # noqa: PLC0415
    from prefect.exceptions import PrefectException, PrefectHTTPStatusError  # noqa: PLC0415
    from prefect.logging.handlers import APILogHandler  # noqa: PLC0415

    refresh_global_settings_context()  # see `flows_imported_meanwhile`
    try:
        yield
    except (httpx.HTTPError, PrefectHTTPStatusError) as error:
        if full := full_disk_behind(error, settings.home):
            raise full from error
        shown = redact_uri(settings.prefect.api_url or "")
        if isinstance(error, httpx.HTTPStatusError) and error.response.is_server_error:
            raise ConfigurationError(
                f"Prefect at {shown} answers with an internal error (HTTP {error.response.status_code}): its database "
                "may be gone. See its log; the embedded one is restarted by `reelabel down` and `reelabel up`."
            ) from error
        raise ConfigurationError(f"Prefect request to {shown} failed: {_first_line(error)}.") from error
    except PrefectException as error:
        raise ConfigurationError(
            f"Prefect rejected the request: {' '.join(str(error).split()).rstrip('.')}."
        ) from error
    finally:
        # An embedded server stops with this command.
        APILogHandler().flush()
        EventsWorker.drain_all(timeout=_DRAIN_TIMEOUT_S)


@contextmanager
def flows_imported_meanwhile() -> Iterator[Callable[[], None]]:
    """Import Prefect and the flows, which takes seconds, while the caller starts services; yield what waits for it.

    Prefect's client gets the server's address later, by `prefect_ready`.
    """
    _set_logging(load_settings())
    with ThreadPoolExecutor(1, thread_name_prefix="import") as background:
        yield background.submit(_import_flows).result


def _import_flows() -> None:
    import prefect.flow_engine  # noqa: F401, PLC0415

    import flows.runs  # noqa: F401, PLC0415
    import tasks.report.videos  # noqa: F401, PLC0415 - needed when the run ends


def _set_logging(settings: Settings) -> None:
    """Set how Prefect logs, which it reads only when it is imported."""
    if settings.log.format == "json":
        log_as_json()
    os.environ.update(PREFECT_JSON_LINES if settings.log.format == "json" else _QUIET)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0].rstrip(".")


_TITLES = {
    ServiceName.POSTGRES: "Postgres",
    ServiceName.S3: "S3",
    ServiceName.PREFECT: "Prefect",
    ServiceName.WORKER: "a worker",
}


@contextmanager
def running_services(*wanted: ServiceName, keep: bool = False, own: bool = False) -> Iterator[Settings]:
    """Run the services that a command needs; yield the settings with their addresses.

    Services that the user has configured are not started.

    Args:
        wanted: The services that the command needs.
        keep: Leave them running.
        own: Start embedded services even if the user has configured others.

    Raises:
        ConfigurationError: A service does not start.
    """
    settings = own_settings() if own else load_settings()
    if not wanted:  # nothing is written to the home folder, which may be none of the user's
        yield settings
        return
    ours = missing_services(settings, frozenset(wanted))
    with ExitStack() as stack:
        # Standard output may be redirected to a file of results.
        with ERRORS.status(f"Starting {', '.join(_TITLES[name] for name in ServiceName if name in ours)}"):
            started = stack.enter_context(running(settings, wanted=ours, keep=keep))
        try:
            yield started
        finally:
            with ERRORS.status("Stopping the services"):
                stack.close()


def running_store(*uris: str) -> AbstractContextManager[Settings]:
    """Run the S3 server if a URI may be on it; yield the settings, as `running_services` does."""
    return running_services(*[ServiceName.S3] * any(uri.startswith("s3://") for uri in uris))


def own_settings() -> Settings:
    """Read the settings, but for the services that the user has set: ours take their places."""
    settings = load_settings()
    places = {name: type(getattr(settings, name))() for name in ("database", "store", "prefect")}
    return settings.model_copy(update=places)


@contextmanager
def startup_errors() -> Iterator[None]:
    """Report an unreachable service at the start as a wrong setting, not as a run to resume.

    Raises:
        ConfigurationError: Replaces a TransientError, but not that of a full disk.
    """
    try:
        yield
    except DiskFullError:
        raise
    except TransientError as error:
        raise ConfigurationError(error.message) from error


@contextmanager
def ready_to_run() -> Iterator[Settings]:
    """Run the services of a run, and check its database and its store; yield the settings with their addresses.

    Raises:
        ConfigurationError: A service does not start, or is unreachable.
    """
    with (
        flows_imported_meanwhile() as wait_for_imports,
        running_services(ServiceName.POSTGRES, ServiceName.S3, ServiceName.PREFECT) as settings,
    ):
        wait_for_imports()
        with prefect_ready(settings):
            with startup_errors():
                prepare_database(settings.database)
                probe_store(settings.store)
            yield settings


@contextmanager
def open_database(*wanted: ServiceName, login: Role = Role.READER) -> Iterator[tuple[Settings, Engine]]:
    """Run services and open the database; yield the settings and a connected engine.

    Raises:
        ConfigurationError: The database is unreachable, or does not have this version's schema; or it would be an
            embedded one that is not there, as in another folder than that of the runs.
    """
    require_home(load_settings())
    with running_services(*wanted) as settings, connected(settings.database, login) as engine:
        with startup_errors():
            check_schema(engine)
        yield settings, engine


def find_run(engine: Engine, text: str) -> RowMapping:
    """Find a run as `tasks.results.runs.find_run` does; for `last`, also say which runs are in progress.

    Raises:
        ConfigurationError: No run or several runs match; the message lists the latest.
    """
    row = runs.find_run(engine, text)
    if text == "last":
        for other in runs.list_running(engine):
            name = runs.short_ids(engine, [other["run_id"]])[other["run_id"]]
            rest = "its rows so far" if other["run_id"] == row["run_id"] else "this is the last run that ended"
            print_notice(f"Run {name} of {other['dataset']} is in progress; {rest}.")
    return row


def require_home(settings: Settings) -> None:
    """Check that the database is one of the user's, or an embedded one that there is.

    Raises:
        ConfigurationError: It would be a new embedded one.
    """
    if not settings.database.is_set and not (settings.home / ServiceName.POSTGRES).exists():
        raise ConfigurationError(
            f"No runs in {settings.home.absolute()}. Run this where you started the run, or set REELABEL_HOME."
        )
