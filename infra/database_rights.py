"""Whether each login of the database may do what it is for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy

from infra.database import Login, check_database, connect, database_errors
from infra.errors import ConfigurationError

if TYPE_CHECKING:
    from infra.settings import DatabaseSettings

# What a login is for, the role that may, and whether it may: one row, whose value is NULL before there are tables.
_PURPOSES = {
    Login.WRITER: ("write rows", "reelabel_writer", "has_table_privilege(oid, 'INSERT')"),
    Login.READER: ("read rows", "reelabel_reader", "has_table_privilege(oid, 'SELECT')"),
    Login.OWNER: ("change the tables", "reelabel_owner", "pg_has_role(relowner, 'MEMBER')"),
}
_QUERY = "SELECT (SELECT {right} FROM pg_class WHERE oid = to_regclass('reelabel.run'))"


def try_login(settings: DatabaseSettings, login: Login) -> str:
    """Log in, and see whether the login may do what it is for; gives server, name and right in words.

    Raises:
        DatabaseUnavailableError: The server does not answer.
        ConfigurationError: It refuses the login, or that has not the rights.
    """
    what, role, right = _PURPOSES[login]
    engine = connect(settings, login)
    try:
        version, name = check_database(engine), engine.url.username
        with database_errors(), engine.connect() as connection:
            may = connection.scalar(sqlalchemy.text(_QUERY.format(right=right)))
    finally:
        engine.dispose()
    if may is False:
        raise ConfigurationError(f"The login {name} may not {what}; grant it {role}, or correct database.{login}.")
    return f"Postgres {version}; {name} may {what}" if may else f"Postgres {version}; {name} finds no tables yet"
