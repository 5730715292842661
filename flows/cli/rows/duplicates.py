"""`reelabel duplicates`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import polars as pl
import typer

from flows.cli.console import ERRORS, OUT, make_table, print_line, print_notice
from flows.cli.context import open_database
from flows.cli.options import Raw, example
from flows.cli.rows.formats import check_format, print_rows
from reelabel.errors import ConfigurationError
from reelabel.text import pluralize
from tasks.embedding.encoder import read_encoder_info
from tasks.results.search_catalogue import DatabaseCatalogue
from tasks.search.catalogue import name_version, require_model
from tasks.search.duplicates import group_duplicates

if TYPE_CHECKING:
    from infra.settings import Settings


@example("reelabel duplicates --dataset films --similarity 0.95")
def duplicates(
    *,
    similarity: Annotated[
        float,
        typer.Option(
            min=0.5, max=1, help="Minimum mean cosine of each frame with the most similar frame of the other video."
        ),
    ] = 0.95,
    dataset: Annotated[str | None, typer.Option(help="Compare only the videos of this dataset.")] = None,
    task: Annotated[str | None, typer.Option(help="Compare only the videos of jobs of this task.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Folder or hub name of the embedding model. Default: describe.model.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="table, json, csv or parquet.")] = "table",
    raw: Raw = False,
) -> None:
    """List groups of described videos that show the same thing, however they are encoded.

    Exits with 1 if there are none.
    """
    check_format(form, raw=raw)
    with open_database(store=True) as (settings, engine):
        rows, compared = _find(settings, DatabaseCatalogue(engine), similarity, dataset, task, model)
    if form == "table":
        _print_table(rows, compared)
    else:
        print_rows([rows], form=form, raw=raw)
    raise typer.Exit(1 if rows.is_empty() else 0)


def _find(
    settings: Settings,
    catalogue: DatabaseCatalogue,
    min_similarity: float,
    dataset: str | None,
    task: str | None,
    model: str | None,
) -> tuple[pl.DataFrame, int]:
    """Return a row for each job on a video with duplicates, and the number of videos compared."""
    identity = read_encoder_info(settings, model).identity
    require_model(catalogue.models(), identity)
    of = {"dataset": dataset, "task": task}
    files = catalogue.files(identity, **of).sort("key")
    if files.is_empty():
        raise ConfigurationError(f"No described video of this selection has embeddings of {name_version(identity)}.")
    with ERRORS.status("") as status:
        found = group_duplicates(settings, identity, files, least=min_similarity, note=status.update, warn=print_notice)
    groups = found.with_columns(pl.col("group") + 1)
    jobs = catalogue.read(identity, keys=groups["key"].to_list(), **of)
    columns = ("group", "similarity", "dataset", "job_id", "task", "video_uri")
    return groups.join(jobs, on="key", how="left", maintain_order="left").select(columns), files["video"].n_unique()


def _print_table(rows: pl.DataFrame, compared: int) -> None:
    if rows.is_empty():
        print_line(f"No duplicates among {pluralize(compared, 'video')}.")
        return
    columns = ("group", "similarity", "job_id", "video_uri")
    OUT.print(make_table(("group", "similarity", "job", "video"), rows.select(columns).iter_rows()))
    print_line(f"{pluralize(rows['group'].n_unique(), 'group')} among {pluralize(compared, 'video')}.")
