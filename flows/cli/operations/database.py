"""`reelabel database`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import psycopg
import typer

from flows.cli.console import print_line, require_parent_folder, status_of
from flows.cli.context import opened_by_owner, require_home, startup_errors
from flows.cli.options import example
from infra.database.connect import Role, check_login, connected, database_errors, place_of
from infra.embedded import ServiceName, missing_services
from infra.settings import load_settings
from reelabel.errors import ConfigurationError
from reelabel.text import pluralize
from sql.migrate import head
from sql.roles import ROLES, create_roles
from tasks.database.backup import restore_backup, write_backup
from tasks.database.schema import prepare_database, upgrade_schema

if TYPE_CHECKING:
    from infra.settings import Settings

_MIB = 1024**2


commands = typer.Typer()


@commands.command("roles")
@example("reelabel database roles")
def make_roles() -> None:
    """Create the owner, writer and reader roles, using database.owner_url; safe to repeat."""
    settings = load_settings()
    if missing_services(settings, frozenset({ServiceName.POSTGRES})):
        print_line("The embedded Postgres already has its roles.")
        return
    with (
        connected(settings.database, Role.OWNER) as administrator,
        startup_errors(),
        database_errors(),
        administrator.connect() as connection,
    ):
        driver = connection.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        try:
            create_roles(driver)
        except psycopg.errors.InsufficientPrivilege as error:
            raise ConfigurationError(
                f"This login cannot create roles: {error.diag.message_primary}. For this command, set "
                "database.owner_url to the URL of a superuser, or of the database's owner with CREATEROLE."
            ) from None
        place = place_of(administrator.url)
    print_line(f"{place} has the roles {', '.join(ROLES)}. Grant them to logins, for example:")
    print_line(f"  CREATE ROLE nightly LOGIN PASSWORD '...' IN ROLE {ROLES[1]};")


@commands.command("upgrade")
@example("reelabel database upgrade")
def upgrade_database() -> None:
    """Upgrade the database to this version's schema, using database.owner_url."""
    with opened_by_owner() as (settings, owner):
        upgrade_schema(owner)
        _check_writer(settings)
        print_line(f"{place_of(owner.url)} is at schema {head()}.")


@commands.command("backup")
@example("reelabel database backup reelabel.zip")
def back_up(
    target: Annotated[str, typer.Argument(metavar="FILE", help="File to write; an existing one is replaced.")],
) -> None:
    """Back up every row, using database.owner_url; runs can continue meanwhile."""
    require_parent_folder(target)
    require_home(load_settings())
    file = Path(target)
    with opened_by_owner() as (_, owner), status_of(f"Backing up to {file}") as notify:
        rows = write_backup(owner, file, notify=notify)
        place = place_of(owner.url)
    print_line(f"{place} is backed up to {file}: {pluralize(rows, 'row')}, {file.stat().st_size / _MIB:,.1f} MiB.")


@commands.command("restore")
@example("reelabel database restore reelabel.zip")
def restore(
    source: Annotated[str, typer.Argument(metavar="FILE", help="File that `reelabel database backup` wrote.")],
) -> None:
    """Restore a backup into a new database, using database.owner_url; a database with rows is refused."""
    file = Path(source)
    if not file.is_file():
        raise ConfigurationError(f"There is no backup at {file}; check the path.")
    with opened_by_owner() as (settings, owner), status_of(f"Restoring {file}") as notify:
        check_login(settings.database, Role.OWNER)
        rows = restore_backup(owner, file, notify=notify)
        _check_writer(settings)
        print_line(f"{place_of(owner.url)} has the {pluralize(rows, 'row')} of {file}, at schema {head()}.")


def _check_writer(settings: Settings) -> None:
    """Check that the writer's login, if configured, is for the same database; an administrator may have none."""
    if settings.database.url:
        prepare_database(settings.database)
