"""`reelabel database roles`, `upgrade`, `backup` and `restore`."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from flows.cli.console import ERRORS, cell, print_line, require_parent_folder
from flows.cli.context import require_home, running_services, startup_errors
from infra.database.connect import Login, connected, database_errors, place_of
from infra.database.rights import check_login
from infra.embedded import ServiceName, missing_services
from infra.settings import load_settings
from reelabel.errors import ConfigurationError
from reelabel.text import pluralize
from sql.migrate import head
from sql.roles import ROLES, create_roles
from tasks.database.backup import restore_backup, write_backup
from tasks.database.schema import prepare_database, upgrade_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from infra.settings import Settings

_POSTGRES = frozenset({ServiceName.POSTGRES})
_MIB = 1024**2


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
    with _opened_by_owner() as (settings, owner):
        upgrade_schema(owner)
        _check_writer(settings)
        print_line(f"{place_of(owner.url)} is at schema {head()}.")


def back_up(target: str) -> None:
    """Back up the database to a file.

    Raises:
        ConfigurationError: The database is unreachable or has no tables, or the login may not read them all; or there
            is no embedded one to back up.
        DiskFullError: The backup does not fit.
    """
    require_parent_folder(target)
    require_home(load_settings())
    file = Path(target)
    with _opened_by_owner() as (_, owner), ERRORS.status(cell(f"Backing up to {file}")) as status:
        rows = write_backup(owner, file, tell=lambda done: status.update(cell(f"Backing up to {file}: {done}")))
        place = place_of(owner.url)
    print_line(f"{place} is backed up to {file}: {pluralize(rows, 'row')}, {file.stat().st_size / _MIB:,.1f} MiB.")


def restore(source: str) -> None:
    """Restore a backup of the database.

    Raises:
        ConfigurationError: The file is no backup, the database is unreachable or not empty, or the login lacks the
            privileges.
    """
    file = Path(source)
    if not file.is_file():
        raise ConfigurationError(f"There is no backup at {file}; check the path.")
    with _opened_by_owner() as (settings, owner), ERRORS.status(cell(f"Restoring {file}")) as status:
        check_login(settings.database, Login.OWNER)
        rows = restore_backup(owner, file, tell=lambda done: status.update(cell(f"Restoring {file}: {done}")))
        _check_writer(settings)
        print_line(f"{place_of(owner.url)} has the {pluralize(rows, 'row')} of {file}, at schema {head()}.")


@contextmanager
def _opened_by_owner() -> Iterator[tuple[Settings, Engine]]:
    with (
        running_services(ServiceName.POSTGRES) as settings,
        startup_errors(),
        connected(settings.database, Login.OWNER) as owner,
    ):
        yield settings, owner


def _check_writer(settings: Settings) -> None:
    """Check that the writer's login, if there is one, leads to the same database; an administrator may have none."""
    if settings.database.url:
        prepare_database(settings.database)
