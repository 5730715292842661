"""`reelabel database`: its commands and options."""

from __future__ import annotations

import typer

from flows.commands.example import example

database_app = typer.Typer(help="Create the database roles, and upgrade the schema.", no_args_is_help=True)


@database_app.command("roles")
@example("reelabel database roles")
def database_roles() -> None:
    """Create the owner, writer and reader roles, using database.owner_url; safe to repeat."""
    from flows.commands.database import make_roles  # noqa: PLC0415

    make_roles()


@database_app.command("upgrade")
@example("reelabel database upgrade")
def database_upgrade() -> None:
    """Upgrade the database to this version's schema, using database.owner_url."""
    from flows.commands.database import upgrade_database  # noqa: PLC0415

    upgrade_database()
