"""Connections to Postgres."""

from __future__ import annotations

from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

import psycopg
import sqlalchemy
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from infra.errors import ConfigurationError, DatabaseUnavailableError, ReelabelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.settings import DatabaseSettings

_DRIVER = "postgresql+psycopg"
# A server that vanishes, its address and all, says nothing more, and a system's own defaults wait for it far too long.
_LIFE_SIGNS = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
_REFUSALS = {
    "28000": "refuses the user",
    "28P01": "refuses the password",
    "3D000": "has no such database",
    "42501": "does not give the user the rights it needs",
}
# What libpq adds on the server's state is ours to say, once.
_GUESSES = (" Is the server running", " This probably means the server terminated")
_SIGNS = {
    "password authentication failed": _REFUSALS["28P01"],
    "no password supplied": _REFUSALS["28P01"],
    "no pg_hba.conf entry": _REFUSALS["28000"],
    'database "': _REFUSALS["3D000"],
    "certificate verify failed": "shows a certificate that database.ca_file does not vouch for",
    "does not match host name": "shows a certificate for another name than database.url's",
    "server does not support SSL": "does not encrypt, as database.ca_file demands",
    "requires a valid client certificate": "asks for a certificate, which database.certificate_file may name",
    "alert certificate required": "asks for a certificate, which database.certificate_file may name",
    "alert unknown ca": "does not take database.certificate_file",
    "root certificate file": "cannot be asked by database.ca_file",
    "could not read certificate file": "cannot be asked by database.certificate_file",
    "private key file": "cannot be asked by database.key_file",
}


class Login(StrEnum):
    """Who connects, by the setting that holds the URL; each but the first may be left empty for `url`."""

    WRITER = "url"
    READER = "reader_url"
    OWNER = "owner_url"


def connect(settings: DatabaseSettings, login: Login = Login.WRITER) -> sqlalchemy.Engine:
    """Make the pool of connections; the first is opened when it is needed.

    A connection is tried before it is lent, so that a restart of the server costs nobody an error.

    Args:
        settings: Where the database is.
        login: Who connects; least rights are best.

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
        connect_args={"connect_timeout": settings.connect_timeout_s}
        | {name: value for name, value in _LIFE_SIGNS.items() if name not in url.query},
    )
    sqlalchemy.event.listen(engine, "handle_error", _leave_a_standby)
    return engine


def _leave_a_standby(context: sqlalchemy.ExceptionContext) -> None:
    """Take a server that takes no writes any more for one that is gone: another one has its name by now, or soon."""
    if isinstance(context.original_exception, psycopg.errors.ReadOnlySqlTransaction):
        context.is_disconnect = True


def check_database(engine: sqlalchemy.Engine) -> str:
    """Open a connection and return the server's version, such as "18.6".

    Raises:
        DatabaseUnavailableError: The server does not answer.
        ConfigurationError: It answers, and refuses the user, the password or the database.
    """
    with database_errors(), engine.connect() as connection:
        return str(connection.scalar(sqlalchemy.text("SHOW server_version"))).split()[0]


def require_writes(engine: sqlalchemy.Engine) -> None:
    """See that the database takes writes.

    Raises:
        DatabaseUnavailableError: It does not answer; or it takes reads alone, as a server does that fails over.
    """
    with database_errors(), engine.connect() as connection:
        if connection.scalar(sqlalchemy.text("SHOW transaction_read_only")) == "on":
            engine.dispose()  # another server may have its name by now
            raise DatabaseUnavailableError(
                "Postgres takes no writes: the server is a standby, or is set to be read-only; database.url must lead "
                "to one that takes them."
            )


@contextmanager
def database_errors() -> Iterator[None]:
    """Turn the driver's errors about the server itself into ours; others pass as they are."""
    try:
        yield
    except PoolTimeoutError as error:
        raise DatabaseUnavailableError(
            "All connections to Postgres stayed in use; raise database.pool_size or try again."
        ) from error
    except (DBAPIError, psycopg.Error) as error:  # COPY is psycopg's own, and so are its errors
        explained = _explain(error.orig if isinstance(error, DBAPIError) else error)
        if explained is None:
            raise
        raise explained from error


def _driver_url(settings: DatabaseSettings, login: Login) -> sqlalchemy.URL:
    if settings.url is None:
        raise ConfigurationError("No database is set; set database.url, or let the command start the embedded one.")
    secret = getattr(settings, login)
    name = f"database.{login if secret else Login.WRITER}"
    try:
        url = make_url((secret or settings.url).get_secret_value())
    except (ArgumentError, ValueError):
        # The cause would print the URL, and with it the password.
        raise ConfigurationError(
            f"{name} cannot be read; write postgresql://user:password@host:port/database, "
            "with special characters of the password percent-encoded."
        ) from None
    if url.get_backend_name() not in {"postgresql", "postgres"}:
        raise ConfigurationError(
            f"{name} begins with {url.drivername}://, but results need Postgres: write postgresql://."
        )
    return url.set(drivername=_DRIVER).update_query_dict(_encryption(settings))


def _encryption(settings: DatabaseSettings) -> dict[str, str]:
    """Give libpq's words for what must hold whatever the URL says."""
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
        return ConfigurationError(f"Postgres {fault}: {detail}. Correct the URL of that login in [database].")
    # A server that takes no writes has failed over, or is about to.
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction)):
        return DatabaseUnavailableError(
            f"Postgres failed: {detail}. Check that it runs and that database.url is right."
        )
    return None


def _refusal_in(detail: str) -> str | None:
    # A connection that is refused while it opens carries no SQLSTATE, only the server's sentence.
    opening = "connection failed" in detail
    return next((fault for sign, fault in _SIGNS.items() if opening and sign in detail), None)
