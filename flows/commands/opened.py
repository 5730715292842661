"""Contexts of commands: running services, and an open database."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from infra.database import Login, connect
from infra.embedded import ServiceName, missing_services, running
from infra.errors import ConfigurationError, TransientError
from infra.settings import load_settings
from tasks.results.schema import check_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from infra.settings import Settings

# Standard output may be redirected to a file of results.
_CONSOLE = Console(stderr=True)
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
    ours = missing_services(settings, frozenset(wanted))
    with ExitStack() as stack:
        with _CONSOLE.status(f"Starting {', '.join(_TITLES[name] for name in ServiceName if name in ours)}"):
            started = stack.enter_context(running(settings, wanted=ours, keep=keep))
        try:
            yield started
        finally:
            with _CONSOLE.status("Stopping the services"):
                stack.close()


def own_settings() -> Settings:
    """Read the settings, but for the services that the user has set: ours take their places."""
    settings = load_settings()
    places = {name: type(getattr(settings, name))() for name in ("database", "store", "prefect")}
    return settings.model_copy(update=places)


@contextmanager
def startup_errors() -> Iterator[None]:
    """Report an unreachable service at the start as a wrong setting, not as a run to resume.

    Raises:
        ConfigurationError: Replaces a TransientError.
    """
    try:
        yield
    except TransientError as error:
        raise ConfigurationError(error.message) from error


@contextmanager
def open_database(*wanted: ServiceName, login: Login = Login.READER) -> Iterator[tuple[Settings, Engine]]:
    """Run services and open the database; yield the settings and a connected engine.

    Raises:
        ConfigurationError: The database is unreachable, or does not have this version's schema.
    """
    with running_services(*wanted) as settings, connected(settings, login) as engine:
        with startup_errors():
            check_schema(engine)
        yield settings, engine


@contextmanager
def connected(settings: Settings, login: Login = Login.READER) -> Iterator[Engine]:
    """Connect to the database, and close its connections at the end."""
    engine = connect(settings.database, login)
    try:
        yield engine
    finally:
        engine.dispose()
