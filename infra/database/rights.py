"""Check that the logins of the database have the privileges that they need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy

from infra.database.connect import Login, check_database, connected, database_errors
from reelabel.errors import ConfigurationError

if TYPE_CHECKING:
    from infra.settings import DatabaseSettings

# The purpose of a login, the role to grant, and the privilege to check: one row, NULL before the tables exist.
_PURPOSES = {
    Login.WRITER: ("write rows", "reelabel_writer", "has_table_privilege(oid, 'INSERT')"),
    Login.READER: ("read rows", "reelabel_reader", "has_table_privilege(oid, 'SELECT')"),
    Login.OWNER: ("change the tables", "reelabel_owner", "pg_has_role(relowner, 'MEMBER')"),
}
_QUERY = "SELECT (SELECT {privilege} FROM pg_class WHERE oid = to_regclass('reelabel.run'))"


def check_login(settings: DatabaseSettings, login: Login) -> str:
    """Log in, check the privileges of the login, and return a summary.

    Raises:
        DatabaseUnavailableError: The server does not respond.
        ConfigurationError: The server rejects the login, or the login lacks privileges.
    """
    action, role, privilege = _PURPOSES[login]
    with connected(settings, login) as engine:
        version, name = check_database(engine), engine.url.username
        with database_errors(), engine.connect() as connection:
            is_allowed = connection.scalar(sqlalchemy.text(_QUERY.format(privilege=privilege)))
    if is_allowed is False:
        raise ConfigurationError(f"The login {name} may not {action}; grant it {role}, or fix database.{login}.")
    return f"Postgres {version}; {name} may {action}" if is_allowed else f"Postgres {version}; no tables yet"
