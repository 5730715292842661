"""Connections to Postgres, and its errors as our own."""

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
# If the host disappears, nothing ends the connection, and the system's default timeouts are far too long.
_KEEPALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
_POOL_SIZE = 4  # planning uses two, the heartbeat a third
_TIMEOUT_S = 10
# Of libpq, unless the URL has others.
_DEFAULTS = {"connect_timeout": _TIMEOUT_S} | _KEEPALIVE
# Of psycopg: a pooler may lend another session to each transaction, in which other statements are prepared.
_UNPREPARED = {"prepare_threshold": None}
_TIME_LIMITS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "transaction_timeout")
# Classes and codes of SQLSTATE, and patterns in libpq's messages about connections, which have no code.
_REFUSED = ("28", "3D", "42501")
# A server that cannot prove that it knows the password is not sent it; it counts as unavailable.
_IMPOSTOR = "authentication method requirement"
_REFUSAL_MESSAGE = re.compile(
    r"authentication failed|authentication method|password|certificate|private key|does not support SSL|"
    r"does not match host name|does not exist|permission denied|pg_hba|alert unknown ca"
)
# The server has ended the session (in the last two cases by its timeouts), or is read-only because of a failover.
_TRANSIENT = (
    *(psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction),
    *(psycopg.errors.IdleInTransactionSessionTimeout, psycopg.errors.TransactionTimeout),
)
_READ_ONLY = (
    "Postgres is read-only: the server is a standby, or it or the login is configured read-only; set database.url to a "
    "server and a login that may write"
)
# Guesses about the cause that libpq appends; our message gives its own advice.
_GUESSES = (" Is the server running", " This probably means the server terminated")


class Role(StrEnum):
    """The login to use, named by the setting with its URL; all but the first default to `url`."""

    WRITER = "url"
    READER = "reader_url"
    OWNER = "owner_url"


# The purpose of a login, the role to grant, and the privilege to check: one row, NULL before the tables exist.
_PURPOSES = {
    Role.WRITER: ("write rows", "reelabel_writer", "has_table_privilege(oid, 'INSERT')"),
    Role.READER: ("read rows", "reelabel_reader", "has_table_privilege(oid, 'SELECT')"),
    Role.OWNER: ("change the tables", "reelabel_owner", "pg_has_role(relowner, 'MEMBER')"),
}
_QUERY = "SELECT (SELECT {privilege} FROM pg_class WHERE oid = to_regclass('reelabel.run'))"


def connect(settings: DatabaseSettings, login: Role = Role.WRITER, *, pool_size: int = _POOL_SIZE) -> sqlalchemy.Engine:
    """Create a connection pool; connections are opened on first use, and checked before each, as servers restart.

    Choose the login with the fewest privileges that suffices.
    """
    url = _driver_url(settings, login)
    engine = sqlalchemy.create_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=_TIMEOUT_S,
        pool_pre_ping=True,
        isolation_level="READ COMMITTED",
        connect_args={name: value for name, value in _DEFAULTS.items() if name not in url.query} | _UNPREPARED,
    )
    sqlalchemy.event.listen(engine, "connect", _use_iso_dates)
    sqlalchemy.event.listen(engine, "handle_error", _discard_read_only)
    return engine


@contextmanager
def connected(settings: DatabaseSettings, login: Role = Role.WRITER) -> Iterator[sqlalchemy.Engine]:
    engine = connect(settings, login)
    try:
        yield engine
    finally:
        engine.dispose()


def _use_iso_dates(connection: psycopg.Connection, _record: object) -> None:
    """Have the server write dates as the driver reads them, where the database or the login sets another style."""
    style = connection.info.parameter_status("DateStyle")
    if style and not style.startswith("ISO"):
        connection.execute("SET DateStyle = ISO")
        connection.commit()


def _discard_read_only(context: sqlalchemy.ExceptionContext) -> None:
    """Discard connections to a read-only server (failover)."""
    if isinstance(context.original_exception, psycopg.errors.ReadOnlySqlTransaction):
        context.is_disconnect = True


def place_of(url: sqlalchemy.URL) -> str:
    """Name a database and its server, to begin a sentence."""
    return f"The database {url.database} on {url.host or 'this machine'}{f':{url.port}' if url.port else ''}"


def check_database(engine: sqlalchemy.Engine) -> str:
    with database_errors(), engine.connect() as connection:
        return str(connection.scalar(sqlalchemy.text("SHOW server_version"))).split()[0]


def check_login(settings: DatabaseSettings, login: Role) -> str:
    action, role, privilege = _PURPOSES[login]
    with connected(settings, login) as engine:
        version, name = check_database(engine), engine.url.username
        with database_errors(), engine.connect() as connection:
            is_allowed = connection.scalar(sqlalchemy.text(_QUERY.format(privilege=privilege)))
    if is_allowed is False:
        raise ConfigurationError(f"The login {name} may not {action}; grant it {role}, or fix database.{login}.")
    return f"Postgres {version}; {name} may {action}" if is_allowed else f"Postgres {version}; no tables yet"


def require_writes(engine: sqlalchemy.Engine) -> None:
    """Check that the database is not read-only, as a standby is during a failover."""
    with database_errors(), engine.connect() as connection:
        if connection.scalar(sqlalchemy.text("SHOW transaction_read_only")) == "on":
            engine.dispose()  # the name may lead to another server by now
            raise DatabaseUnavailableError(f"{_READ_ONLY}.")


def unlimited(**settings: str) -> str:
    """Return SQL that lets a transaction take as long as it needs, whatever the login's limits, with other settings.

    Settings that the server's version lacks, as `transaction_timeout` before 17, are left out.
    """
    values = ", ".join(
        f"('{name}', '{value}')" for name, value in (dict.fromkeys(_TIME_LIMITS, "0") | settings).items()
    )
    wanted = f"(VALUES {values}) AS wanted (name, value)"
    return f"SELECT set_config(name, value, true) FROM {wanted} JOIN pg_settings USING (name)"  # noqa: S608 - names of ours


@contextmanager
def database_errors() -> Iterator[None]:
    """Convert the driver's errors about the server to our own; other errors pass through.

    If Ctrl-C or SIGTERM interrupts the body, raise what they raise, also where SQLAlchemy's cleanup of the interrupted
    connection has replaced it with an error of its own.
    """
    handled = sys.exception()
    try:
        yield
    except PoolTimeoutError as error:
        raise DatabaseUnavailableError("All connections of this process to Postgres were in use; try again.") from error
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


def _driver_url(settings: DatabaseSettings, login: Role) -> sqlalchemy.URL:
    own = getattr(settings, login)
    secret, name = own or settings.url, f"database.{login if own else Role.WRITER}"
    if secret is None and settings.is_set:
        others = " and ".join(f"database.{each}" for each in Role if getattr(settings, each))
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
    return url.set(drivername=_DRIVER).update_query_dict({"client_encoding": "utf8"})


def is_unverified(settings: DatabaseSettings, login: Role) -> bool:
    """Return whether a login's URL asks for encryption without a CA to verify the server."""
    query = _driver_url(settings, login).query
    return query.get("sslmode") == "require" and "sslrootcert" not in query


def _explain(error: BaseException | None) -> ReelabelError | None:
    detail = " ".join(str(error).split())
    for guess in _GUESSES:
        detail = detail.partition(guess)[0]
    detail = detail.rstrip(".")
    state = getattr(error, "sqlstate", None) or ""
    is_refused = "connection failed" in detail and _REFUSAL_MESSAGE.search(detail) and _IMPOSTOR not in detail
    if state.startswith(_REFUSED) or is_refused:
        return ConfigurationError(f"Postgres refuses the login: {detail}. Fix its URL in [database], or its rights.")
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
    if isinstance(error, _TRANSIENT):
        return DatabaseUnavailableError(
            f"Postgres failed: {detail}. Check that it is running and that database.url is correct."
        )
    return None
