"""Connections to Postgres."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

import psycopg
import sqlalchemy
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from infra.errors import DatabaseUnavailableError
from reelabel.errors import ConfigurationError, DiskFullError, ReelabelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.settings import DatabaseSettings

_DRIVER = "postgresql+psycopg"
# If the host disappears, no packet ends the connection, and the system's default timeouts are far too long.
_KEEPALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
_REFUSALS = {
    "28000": "rejects the user",
    "28P01": "rejects the password",
    "3D000": "has no such database",
    "42501": "denies the user the required privileges",
}
# The server has ended a session, in the last two cases for its own limits of time; or it is read-only, and has failed
# over, or is about to.
_PASSING = (
    *(psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction),
    *(psycopg.errors.IdleInTransactionSessionTimeout, psycopg.errors.TransactionTimeout),
)
_READ_ONLY = (
    "Postgres is read-only: the server is a standby, or it or the login is configured read-only; set database.url to a "
    "server and a login that may write"
)
# Guesses about the cause that libpq appends; our message gives its own advice.
_GUESSES = (" Is the server running", " This probably means the server terminated")
_SIGNS = {  # regular expressions
    "password authentication failed": _REFUSALS["28P01"],
    "no password supplied": _REFUSALS["28P01"],
    "no pg_hba.conf entry": _REFUSALS["28000"],
    'role "[^"]*" does not exist': _REFUSALS["28000"],
    'database "[^"]*" does not exist': _REFUSALS["3D000"],
    "permission denied for database": _REFUSALS["42501"],
    "certificate verify failed": "presents a certificate that database.ca_file did not sign",
    "does not match host name": "presents a certificate for a host name other than the one in database.url",
    "server does not support SSL": "does not support encryption, which database.ca_file or the URL's sslmode requires",
    "requires a valid client certificate": "requires a client certificate (database.certificate_file)",
    "alert certificate required": "requires a client certificate (database.certificate_file)",
    "alert unknown ca": "rejects the certificate in database.certificate_file",
    "root certificate file": "needs the file of its CA (database.ca_file)",
    "could not read certificate file": "cannot be reached with database.certificate_file",
    "private key file": "cannot be reached with database.key_file",
}


class Login(StrEnum):
    """The login to use, named by the setting with its URL; all but the first default to `url`."""

    WRITER = "url"
    READER = "reader_url"
    OWNER = "owner_url"


def connect(settings: DatabaseSettings, login: Login = Login.WRITER) -> sqlalchemy.Engine:
    """Create a connection pool; connections are opened on first use.

    Connections are checked before use, so that a restart of the server causes no errors. Choose the login with the
    fewest privileges that suffices.

    Raises:
        ConfigurationError: No URL is set, or it is not a Postgres URL.
    """
    url = _driver_url(settings, login)
    engine = sqlalchemy.create_engine(
        url,
        pool_size=settings.pool_size,
        max_overflow=0,
        pool_timeout=settings.connect_timeout_s,
        pool_pre_ping=True,
        isolation_level="READ COMMITTED",
        connect_args={"connect_timeout": settings.connect_timeout_s}
        | {name: value for name, value in _KEEPALIVE.items() if name not in url.query},
    )
    sqlalchemy.event.listen(engine, "connect", _write_dates_alike)
    sqlalchemy.event.listen(engine, "handle_error", _leave_a_standby)
    return engine


@contextmanager
def connected(settings: DatabaseSettings, login: Login = Login.WRITER) -> Iterator[sqlalchemy.Engine]:
    """Connect to a database as `connect` does, and close its connections at the end."""
    engine = connect(settings, login)
    try:
        yield engine
    finally:
        engine.dispose()


def _write_dates_alike(connection: psycopg.Connection, _record: object) -> None:
    """Have the server write dates as the driver reads them, where the database or the login sets another style."""
    style = connection.info.parameter_status("DateStyle")
    if style and not style.startswith("ISO"):
        connection.execute("SET DateStyle = ISO")
        connection.commit()


def _leave_a_standby(context: sqlalchemy.ExceptionContext) -> None:
    """Drop the connection if the server has become read-only: after a failover, its name leads to another server."""
    if isinstance(context.original_exception, psycopg.errors.ReadOnlySqlTransaction):
        context.is_disconnect = True


def place_of(url: sqlalchemy.URL) -> str:
    """Name a database and its server, to begin a sentence."""
    return f"The database {url.database} on {url.host or 'this machine'}{f':{url.port}' if url.port else ''}"


def check_database(engine: sqlalchemy.Engine) -> str:
    """Open a connection and return the server's version, such as "18.6".

    Raises:
        DatabaseUnavailableError: The server does not respond.
        ConfigurationError: The server rejects the user, the password or the database.
    """
    with database_errors(), engine.connect() as connection:
        return str(connection.scalar(sqlalchemy.text("SHOW server_version"))).split()[0]


def require_writes(engine: sqlalchemy.Engine) -> None:
    """Check that the database accepts writes.

    Raises:
        DatabaseUnavailableError: The server does not respond or is read-only, as during a failover.
    """
    with database_errors(), engine.connect() as connection:
        if connection.scalar(sqlalchemy.text("SHOW transaction_read_only")) == "on":
            engine.dispose()  # the name may lead to another server by now
            raise DatabaseUnavailableError(f"{_READ_ONLY}.")


@contextmanager
def database_errors() -> Iterator[None]:
    """Convert the driver's errors about the server to our own; other errors pass through.

    If Ctrl-C or SIGTERM interrupts the body, raise what they raise, also where SQLAlchemy's cleanup of the interrupted
    connection has put an error of its own in its place.
    """
    handled = sys.exception()
    try:
        yield
    except PoolTimeoutError as error:
        raise DatabaseUnavailableError(
            "All connections to Postgres were in use; raise database.pool_size, or try again."
        ) from error
    except (DBAPIError, psycopg.Error) as error:  # COPY bypasses SQLAlchemy, so it raises psycopg's own errors
        if interruption := _interruption(error, handled):
            raise interruption from None
        explained = _explain(error.orig if isinstance(error, DBAPIError) else error)
        if explained is None:
            raise
        raise explained from error


def _interruption(error: BaseException, handled: BaseException | None) -> BaseException | None:
    """Return what interrupted a body that ended with an error, other than what was handled before it; else None."""
    found = error.__cause__ or error.__context__
    while found is not None and found is not handled:
        if not isinstance(found, Exception):  # as KeyboardInterrupt and Prefect's TerminationSignal
            return found
        found = found.__cause__ or found.__context__
    return None


def _driver_url(settings: DatabaseSettings, login: Login) -> sqlalchemy.URL:
    own = getattr(settings, login)
    secret, name = own or settings.url, f"database.{login if own else Login.WRITER}"
    if secret is None and settings.is_set:
        others = " and ".join(f"database.{each}" for each in Login if getattr(settings, each))
        raise ConfigurationError(f"{name} is not set, only {others}; set it to the login that writes rows.")
    if secret is None:
        raise ConfigurationError(
            "No database is configured; set database.url, or let the command start the embedded one."
        )
    try:
        url = make_url(secret.get_secret_value())
    except (ArgumentError, ValueError):
        # No cause: it would print the URL with the password.
        raise ConfigurationError(
            f"{name} is not a valid URL; write postgresql://user:password@host:port/database, "
            "with special characters in the password percent-encoded."
        ) from None
    if url.get_backend_name() not in {"postgresql", "postgres"}:
        raise ConfigurationError(
            f"{name} begins with {url.drivername}://, but only Postgres is supported; write postgresql://."
        )
    # The encoding, since the environment, the login or the database may set another.
    return url.set(drivername=_DRIVER).update_query_dict({"client_encoding": "utf8"} | _encryption(settings))


def is_unverified(settings: DatabaseSettings, login: Login) -> bool:
    """Return whether a login's URL asks for encryption without a CA that would tell who the server is."""
    query = _driver_url(settings, login).query
    return query.get("sslmode") == "require" and "sslrootcert" not in query


def _encryption(settings: DatabaseSettings) -> dict[str, str]:
    """Return the libpq options for TLS, which override those in the URL."""
    if settings.ca_file is None:
        return {}
    files = {"sslrootcert": settings.ca_file, "sslcert": settings.certificate_file, "sslkey": settings.key_file}
    return {"sslmode": "verify-full"} | {name: str(file) for name, file in files.items() if file}


def _explain(error: BaseException | None) -> ReelabelError | None:
    detail = " ".join(str(error).split())
    for guess in _GUESSES:
        detail = detail.partition(guess)[0]
    detail = detail.rstrip(".")
    fault = _REFUSALS.get(getattr(error, "sqlstate", None) or "") or _refusal_in(detail)
    if fault:
        return ConfigurationError(f"Postgres {fault}: {detail}. Fix the URL of that login in [database].")
    if isinstance(error, psycopg.errors.DiskFull):
        return DiskFullError(
            f"The disk of Postgres is full: {detail}. Free space there, then run the same command again."
        )
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return DatabaseUnavailableError(f"{_READ_ONLY} ({detail}).")
    if isinstance(error, psycopg.errors.QueryCanceled):
        return DatabaseUnavailableError(
            f"Postgres ended a statement ({detail}); raise statement_timeout of the login or of the database, and try "
            "again."
        )
    if isinstance(error, _PASSING):
        return DatabaseUnavailableError(
            f"Postgres failed: {detail}. Check that it is running and that database.url is correct."
        )
    return None


def _refusal_in(detail: str) -> str | None:
    # An error while connecting has no SQLSTATE, only the server's message.
    opening = "connection failed" in detail
    return next((fault for sign, fault in _SIGNS.items() if opening and re.search(sign, detail)), None)
