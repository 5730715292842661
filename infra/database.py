"""Connections to Postgres."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import sqlalchemy
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from infra.errors import ConfigurationError, DatabaseUnavailableError, ReelabelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.settings import DatabaseSettings

_DRIVER = "postgresql+psycopg"
_OURS_TO_FIX = {
    "28000": "refuses the user",
    "28P01": "refuses the password",
    "3D000": "has no such database",
    "42501": "does not give the user the rights it needs",
}


def connect(settings: DatabaseSettings) -> sqlalchemy.Engine:
    """Make the pool of connections; the first is opened when it is needed.

    A connection is tried before it is lent, so that a restart of the server costs nobody an error.

    Raises:
        ConfigurationError: No URL is set, or it is not a Postgres URL.
    """
    return sqlalchemy.create_engine(
        _driver_url(settings),
        pool_size=settings.pool_size,
        max_overflow=0,
        pool_timeout=settings.connect_timeout_s,
        pool_pre_ping=True,
        connect_args={"connect_timeout": settings.connect_timeout_s},
    )


def check_database(engine: sqlalchemy.Engine) -> str:
    """Open a connection and return the server's version, such as "18.6".

    Raises:
        DatabaseUnavailableError: The server does not answer.
        ConfigurationError: It answers, and refuses the user, the password or the database.
    """
    with database_errors(engine), engine.connect() as connection:
        return str(connection.scalar(sqlalchemy.text("SHOW server_version"))).split()[0]


@contextmanager
def database_errors(engine: sqlalchemy.Engine) -> Iterator[None]:
    """Turn the driver's errors about the server itself into ours; others pass as they are."""
    try:
        yield
    except PoolTimeoutError as error:
        raise DatabaseUnavailableError(
            f"All connections to {_place(engine)} stayed in use; raise database.pool_size or try again."
        ) from error
    except (OperationalError, InterfaceError) as error:
        raise _explain(error, _place(engine)) from error
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) in _OURS_TO_FIX:
            raise _explain(error, _place(engine)) from error
        raise


def _driver_url(settings: DatabaseSettings) -> sqlalchemy.URL:
    if settings.url is None:
        raise ConfigurationError("No database is set; set database.url, or let the command start the embedded one.")
    try:
        url = make_url(settings.url.get_secret_value())
    except (ArgumentError, ValueError):
        # The cause would print the URL, and with it the password.
        raise ConfigurationError(
            "database.url cannot be read; write postgresql://user:password@host:port/database, "
            "with special characters of the password percent-encoded."
        ) from None
    if url.get_backend_name() not in {"postgresql", "postgres"}:
        raise ConfigurationError(
            f"database.url begins with {url.drivername}://, but results need Postgres: write postgresql://."
        )
    return url.set(drivername=_DRIVER)


def _place(engine: sqlalchemy.Engine) -> str:
    url = engine.url
    return f"Postgres at {url.host or 'the local socket'}:{url.port or 5432}"


def _explain(error: DBAPIError, place: str) -> ReelabelError:
    sqlstate, detail = getattr(error.orig, "sqlstate", None), _last_line(error)
    # A refused connection attempt carries no SQLSTATE in psycopg: the server's sentence decides.
    fault = _OURS_TO_FIX.get(sqlstate or "") or _fault_in(detail)
    if fault:
        return ConfigurationError(f"{place} {fault} ({detail}); correct database.url.")
    if isinstance(error.orig, psycopg.ProgrammingError):
        return ConfigurationError(f"{place} cannot be reached as database.url says: {detail}.")
    return DatabaseUnavailableError(
        f"{place} does not answer ({detail}); check that it runs and that database.url is right."
    )


def _fault_in(detail: str) -> str | None:
    signs = {
        "password authentication failed": "28P01",
        "no password supplied": "28P01",
        "no pg_hba.conf entry": "28000",
        "does not exist": "3D000",
    }
    return next((_OURS_TO_FIX[state] for sign, state in signs.items() if sign in detail), None)


def _last_line(error: DBAPIError) -> str:
    lines = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
    return lines[-1].rpartition("FATAL:")[2].strip().rstrip(".")
