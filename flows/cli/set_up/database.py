"""`reelabel database roles` and `reelabel database upgrade`."""

from __future__ import annotations

import psycopg

from flows.cli.console import print_line
from flows.cli.context import running_services, startup_errors
from infra.database.connect import Login, connected, database_errors, place_of
from infra.embedded import ServiceName, missing_services
from infra.settings import load_settings
from reelabel.errors import ConfigurationError
from sql.migrate import head
from sql.roles import ROLES, create_roles
from tasks.database.schema import prepare_database, upgrade_schema

_POSTGRES = frozenset({ServiceName.POSTGRES})


def make_roles() -> None:
    """Create the roles in the user's own Postgres; the embedded one already has them.

    Raises:
        ConfigurationError: The login lacks the privilege, or the database is unreachable.
    """
    settings = load_settings()
    if missing_services(settings, _POSTGRES):
        print_line("The embedded Postgres already has its roles.")
        return
    try:
        with (
            connected(settings.database, Login.OWNER) as administrator,
            startup_errors(),
            database_errors(),
            administrator.connect() as connection,
        ):
            driver = connection.connection.driver_connection
            assert isinstance(driver, psycopg.Connection)
            create_roles(driver)
            place = place_of(administrator.url)
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"This login cannot create roles: {error.diag.message_primary}. For this command, set "
            "database.owner_url to the URL of a superuser, or of the database's owner with CREATEROLE."
        ) from None
    print_line(f"{place} has the roles {', '.join(ROLES)}. Grant them to logins, for example:")
    print_line(f"  CREATE ROLE nightly LOGIN PASSWORD '...' IN ROLE {ROLES[1]};")


def upgrade_database() -> None:
    """Upgrade the database to this version's schema.

    Raises:
        ConfigurationError: The login lacks the privilege, or the database is unreachable or newer.
    """
    with (
        running_services(ServiceName.POSTGRES) as settings,
        startup_errors(),
        connected(settings.database, Login.OWNER) as owner,
    ):
        upgrade_schema(owner)
        if settings.database.url:  # an administrator may have no other login than the owner's
            prepare_database(settings.database)
        print_line(f"{place_of(owner.url)} is at schema {head()}.")
