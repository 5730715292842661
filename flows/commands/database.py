"""`reelabel database roles` and `reelabel database upgrade`."""

from __future__ import annotations

import psycopg

from flows.commands.opened import at_start, services
from flows.commands.terminal import say
from infra.database import Login, connect, database_errors
from infra.embedded import ServiceName, needed
from infra.errors import ConfigurationError
from infra.settings import load_settings
from sql.roles import ROLES, create_roles
from tasks.results.schema import prepare_database

_POSTGRES = frozenset({ServiceName.POSTGRES})


def make_roles() -> None:
    """Make the roles in the user's own Postgres; the embedded one has them from its start.

    Raises:
        ConfigurationError: The login may not, or the database is out of reach.
    """
    settings = load_settings()
    if needed(settings, _POSTGRES):
        say("The embedded Postgres has its roles, and logs in by them.")
        return
    administrator = connect(settings.database, Login.OWNER)
    try:
        with at_start(), database_errors(), administrator.connect() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, psycopg.Connection)
            create_roles(driver)
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"This login may not make roles: {error.diag.message_primary}. For this one command, set "
            "database.owner_url to a superuser's, or to one that owns the database and may create roles."
        ) from None
    finally:
        administrator.dispose()
    say(f"Roles {', '.join(ROLES)} stand, with their rights. Grant them to logins, such as:")
    say(f"  CREATE ROLE nightly LOGIN PASSWORD '...' IN ROLE {ROLES[1]};")


def upgrade_database() -> None:
    """Bring the database to this version's schema.

    Raises:
        ConfigurationError: The login may not, or the database is out of reach, or newer.
    """
    with services(ServiceName.POSTGRES) as settings, at_start():
        prepare_database(settings.database)
    say("The database has this version's schema.")
