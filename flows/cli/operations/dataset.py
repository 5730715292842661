"""`reelabel dataset`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.console import ERRORS, cell, print_line
from flows.cli.context import running_services, startup_errors
from flows.cli.options import example
from infra.database.connect import Role, connected
from infra.embedded import ServiceName
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
from tasks.results.archive import archive_dataset, restore_dataset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

commands = typer.Typer()


@commands.command("archive")
@example("reelabel dataset archive animals-2026-11-01 s3://archive/animals-2026-11-01")
def archive(
    name: Annotated[str, typer.Argument(help="Dataset without a run in progress.")],
    target: Annotated[str, typer.Argument(help="New folder for the files: a path or s3://.")],
) -> None:
    """Write a dataset's rows to Parquet files, read them back, and delete the rows, using database.owner_url."""
    with _opened(target, f"Archiving {name}") as (owner, objects, tell):
        rows = archive_dataset(owner, name, objects, target, tell=tell)
    print_line(f"{pluralize(rows, 'row')} of dataset {name} are in {target}, and no longer in the database.")


@commands.command("restore")
@example("reelabel dataset restore s3://archive/animals-2026-11-01")
def restore(
    source: Annotated[str, typer.Argument(help="Folder that `reelabel dataset archive` wrote.")],
) -> None:
    """Insert the rows of an archive into the database, using database.owner_url; the files stay."""
    with _opened(source, f"Restoring {source}") as (owner, objects, tell):
        name, rows = restore_dataset(owner, objects, source, tell=tell)
    print_line(f"Dataset {name} has its {pluralize(rows, 'row')} from {source}.")


@contextmanager
def _opened(folder: str, doing: str) -> Iterator[tuple[Engine, ObjectStore, Callable[[str], None]]]:
    wanted = [ServiceName.POSTGRES, *([ServiceName.S3] if folder.startswith("s3://") else [])]
    with (
        running_services(*wanted) as settings,
        startup_errors(),
        connected(settings.database, Role.OWNER) as owner,
        ERRORS.status(cell(doing)) as status,
    ):
        yield owner, ObjectStore(settings.store), lambda done: status.update(cell(f"{doing}: {done}"))
