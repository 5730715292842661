"""`reelabel dataset`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.console import print_line, status_of
from flows.cli.context import opened_by_owner
from flows.cli.options import example
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
from tasks.results.archive import archive_dataset, restore_dataset

commands = typer.Typer()


@commands.command("archive")
@example("reelabel dataset archive animals-2026-11-01 s3://archive/animals-2026-11-01")
def archive(
    name: Annotated[str, typer.Argument(help="Dataset without a run in progress.")],
    target: Annotated[str, typer.Argument(help="New folder for the files: a path or s3://.")],
) -> None:
    """Write a dataset's rows to Parquet files, read them back, and delete the rows, using database.owner_url."""
    with opened_by_owner(target) as (settings, owner), status_of(f"Archiving {name}") as notify:
        rows = archive_dataset(owner, name, ObjectStore(settings.store), target, notify=notify)
    print_line(f"{pluralize(rows, 'row')} of dataset {name} are in {target}, and no longer in the database.")


@commands.command("restore")
@example("reelabel dataset restore s3://archive/animals-2026-11-01")
def restore(source: Annotated[str, typer.Argument(help="Folder that `reelabel dataset archive` wrote.")]) -> None:
    """Insert the rows of an archive into the database, using database.owner_url; the files remain."""
    with opened_by_owner(source) as (settings, owner), status_of(f"Restoring {source}") as notify:
        name, rows = restore_dataset(owner, ObjectStore(settings.store), source, notify=notify)
    print_line(f"Dataset {name} has its {pluralize(rows, 'row')} from {source}.")
