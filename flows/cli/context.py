"""Context managers of commands: running services, Prefect's client, an open database."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from flows.cli.console import ERRORS, print_notice
from flows.run.names import PREFECT_VARIABLES
from infra.database.connect import Role, connected
from infra.doctor import check_prefect, probe_store
from infra.embedded import ServiceName, export, full_disk_behind, missing_services, running
from infra.logs import PREFECT_JSON_LINES, log_as_json
from infra.settings import load_settings
from reelabel.errors import ConfigurationError, DiskFullError, TransientError
from reelabel.sources.object_info import redact_uri
from tasks.database.schema import check_schema, prepare_database
from tasks.results import runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Engine, RowMapping

    from infra.settings import Settings


OF_A_RUN = (ServiceName.POSTGRES, ServiceName.S3, ServiceName.PREFECT)
_DRAIN_TIMEOUT_S = 5
_AT_ONCE = {"PREFECT_CLIENT_MAX_RETRIES": "0"}
# Logs go to the Prefect server; the terminal shows our progress bar and summary instead.
_QUIET = {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL", "PREFECT_LOGGING_HANDLERS_DEBUG_LEVEL": "CRITICAL"}


@contextmanager
def prefect_ready(settings: Settings, *, patient: bool = True) -> Iterator[None]:
    """Configure Prefect's client, and convert its errors to ConfigurationError, or DiskFullError for the home folder.

    Import Prefect only inside this context, because it reads its environment on import. A `patient` client retries for
    about a minute if the server is unavailable.
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

    refresh_global_settings_context()  # see `_import_flows`
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
        reason = (str(error) or type(error).__name__).partition("\n")[0].rstrip(".")
        raise ConfigurationError(f"Prefect request to {shown} failed: {reason}.") from error
    except PrefectException as error:
        raise ConfigurationError(
            f"Prefect rejected the request: {' '.join(str(error).split()).rstrip('.')}."
        ) from error
    finally:
        # An embedded server stops with this command.
        APILogHandler().flush()
        EventsWorker.drain_all(timeout=_DRAIN_TIMEOUT_S)


def _import_flows(modules: Sequence[str]) -> None:
    """Import Prefect, the flows and other modules, which takes seconds, while services start."""
    import prefect.flow_engine  # noqa: F401, PLC0415

    import flows.runs  # noqa: F401, PLC0415
    import tasks.report.videos  # noqa: F401, PLC0415 - needed when the run ends

    for name in modules:
        import_module(name)


def _set_logging(settings: Settings) -> None:
    """Configure Prefect's logging, which it reads only on import."""
    if settings.log.format == "json":
        log_as_json()
    os.environ.update(PREFECT_JSON_LINES if settings.log.format == "json" else _QUIET)


_TITLES = dict(zip(ServiceName, ("Postgres", "S3", "Prefect", "a worker"), strict=True))


@contextmanager
def running_services(*services: ServiceName, keep: bool = False, own: bool = False) -> Iterator[Settings]:
    """Run the services that a command needs, except those that the user has configured; yield settings with addresses.

    With `keep`, leave them running; with `own`, start embedded ones even if the user has configured others.
    """
    settings = own_settings() if own else load_settings()
    if not services:  # nothing is written to the home folder, which may be none of the user's
        yield settings
        return
    embedded = missing_services(settings, frozenset(services))
    with ExitStack() as stack:
        # Standard output may be redirected to a file of results.
        with ERRORS.status(f"Starting {', '.join(_TITLES[name] for name in ServiceName if name in embedded)}"):
            started = stack.enter_context(running(settings, wanted=embedded, keep=keep))
        try:
            yield started
        finally:
            with ERRORS.status("Stopping the services"):
                stack.close()


def running_store(*uris: str) -> AbstractContextManager[Settings]:
    """Run the S3 server if a URI may be on it; yield the settings, like `running_services`."""
    return running_services(*_store_of(*uris))


def _store_of(*uris: str) -> list[ServiceName]:
    return [ServiceName.S3] * any(uri.startswith("s3://") for uri in uris)


def own_settings() -> Settings:
    """Load the settings without the user's services, which embedded ones replace."""
    settings = load_settings()
    defaults = {name: type(getattr(settings, name))() for name in ("database", "store", "prefect")}
    return settings.model_copy(update=defaults)


@contextmanager
def startup_errors() -> Iterator[None]:
    """Convert TransientError to ConfigurationError, so that the exit code is 2, except on a full disk."""
    try:
        yield
    except DiskFullError:
        raise
    except TransientError as error:
        raise ConfigurationError(error.message) from error


@contextmanager
def ready_to_run(*modules: str, keep: bool = False, own: bool = False) -> Iterator[Settings]:
    """Run the services of a run, and check its database and its store; options and result as `running_services`.

    Meanwhile, import the flows, and `modules`.
    """
    _set_logging(load_settings())
    with ThreadPoolExecutor(1, "import") as background:
        imported = background.submit(_import_flows, modules)
        with running_services(*OF_A_RUN, keep=keep, own=own) as settings:
            imported.result()
            with prefect_ready(settings):
                with startup_errors():
                    prepare_database(settings.database)
                    probe_store(settings.store)
                yield settings


@contextmanager
def running_with_prefect(*services: ServiceName) -> Iterator[Settings]:
    """Run services, of which Prefect is one, and configure its client."""
    with running_services(*services) as settings, prefect_ready(settings):
        yield settings


@contextmanager
def open_database(*, store: bool = False, login: Role = Role.READER) -> Iterator[tuple[Settings, Engine]]:
    """Run Postgres, and the store if needed; yield the settings and an engine of a database with our schema."""
    require_home(load_settings())
    with (
        running_services(ServiceName.POSTGRES, *[ServiceName.S3] * store) as settings,
        connected(settings.database, login) as engine,
    ):
        with startup_errors():
            check_schema(engine)
        yield settings, engine


@contextmanager
def opened_by_owner(*uris: str) -> Iterator[tuple[Settings, Engine]]:
    """Run Postgres, and the S3 server if a URI may be on it; yield an engine with the login that owns the tables."""
    with (
        running_services(ServiceName.POSTGRES, *_store_of(*uris)) as settings,
        startup_errors(),
        connected(settings.database, Role.OWNER) as owner,
    ):
        yield settings, owner


def find_run(engine: Engine, text: str) -> RowMapping:
    """Find a run like `tasks.results.runs.find_run`; for `last`, also print which runs are in progress."""
    row = runs.find_run(engine, text)
    if text == "last":
        for other in runs.list_running(engine):
            name = runs.short_ids(engine, [other["run_id"]])[other["run_id"]]
            rest = "its rows so far" if other["run_id"] == row["run_id"] else "this is the last run that ended"
            print_notice(f"Run {name} of {other['dataset']} is in progress; {rest}.")
    return row


def require_home(settings: Settings) -> None:
    """Refuse to start an embedded database that does not exist, as in a folder without runs."""
    if not settings.database.is_set and not (settings.home / ServiceName.POSTGRES).exists():
        raise ConfigurationError(
            f"No runs in {settings.home.absolute()}. Run this where you started the run, or set REELABEL_HOME."
        )
