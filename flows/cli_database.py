"""The command line's `database`: its roles and its schema."""

from __future__ import annotations

import typer

from flows.commands.example import example

database_app = typer.Typer(help="Give the database its roles, and bring it up to date.", no_args_is_help=True)


@database_app.command("roles")
@example("reelabel database roles")
def database_roles() -> None:
    """Create the roles of owner, writer and reader, by the login of database.owner_url; safe to run again."""
    from flows.commands.database import make_roles  # noqa: PLC0415

    make_roles()


@database_app.command("upgrade")
@example("reelabel database upgrade")
def database_upgrade() -> None:
    """Bring the database to this version's schema, by the login of database.owner_url."""
    from flows.commands.database import upgrade_database  # noqa: PLC0415

    upgrade_database()
