"""The commands `report` and `search`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.options import Raw, Run, example
from reelabel.errors import ConfigurationError

app = typer.Typer()


@app.command()
@example("reelabel report last --out run.html")
def report(
    run: Run = "last",
    out: Annotated[
        str | None, typer.Option(help="File to write. Default: reelabel-RUN.html in the current folder.")
    ] = None,
    job: Annotated[list[str] | None, typer.Option(help="Job id that the page must include; repeatable.")] = None,
    session: Annotated[
        str | None, typer.Option(help="Instead of a run, a live session: its id, a prefix of it, or 'last'.")
    ] = None,
) -> None:
    """Write a self-contained HTML page about a run."""
    if session is not None:
        from flows.cli.rows.sessions import write_session_report  # noqa: PLC0415

        if run != "last" or job:
            raise ConfigurationError("--session takes no run and no --job.")
        write_session_report(session, out=out)
        return
    from flows.cli.rows.results import write_report  # noqa: PLC0415

    write_report(run, out=out, job_ids=job or [])


@app.command()
@example('reelabel search "people at a whiteboard" --top 20 --sheet found.png')
def search(  # noqa: PLR0913 - a command's options
    text: Annotated[str | None, typer.Argument(help="What to look for, in a few words.")] = None,
    *,
    bank: Annotated[
        str | None, typer.Option(help="Search for each text of a file: one per line, CSV or Parquet, as for tags.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="Search for what looks like this picture instead.")] = None,
    like: Annotated[
        str | None,
        typer.Option(metavar="JOB_ID@SECONDS", help="Search for what looks like this moment, such as film-7@12.5."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of moments to show per search.")] = 10,
    dataset: Annotated[str | None, typer.Option(help="Search only the videos of this dataset.")] = None,
    task: Annotated[str | None, typer.Option(help="Search only the videos of jobs of this task.")] = None,
    min_score: Annotated[
        float | None, typer.Option(min=-1, max=1, help="Leave out moments with a lower cosine.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Folder or hub name of the embedding model. Default: describe.model.")
    ] = None,
    sheet: Annotated[str | None, typer.Option(help="Save the frames to this image file, such as x.png.")] = None,
    form: Annotated[str, typer.Option("--format", help="table, json, csv or parquet.")] = "table",
    raw: Raw = False,
) -> None:
    """Search described videos by text, image or example.

    Exits with 1 if nothing is found.
    """
    from flows.cli.rows.search import SearchOptions, run_search  # noqa: PLC0415

    options = SearchOptions(
        text=text,
        bank=bank,
        image=image,
        like=like,
        top=top,
        dataset=dataset,
        task=task,
        min_score=min_score,
        model=model,
        sheet=sheet,
        form=form,
        raw=raw,
    )
    raise typer.Exit(run_search(options))


@app.command()
@example("reelabel duplicates --dataset films --similarity 0.95")
def duplicates(
    *,
    similarity: Annotated[
        float,
        typer.Option(min=0.5, max=1, help="Least mean cosine of each frame with the most similar one of the other."),
    ] = 0.95,
    dataset: Annotated[str | None, typer.Option(help="Compare only the videos of this dataset.")] = None,
    task: Annotated[str | None, typer.Option(help="Compare only the videos of jobs of this task.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Folder or hub name of the embedding model. Default: describe.model.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="table, json, csv or parquet.")] = "table",
    raw: Raw = False,
) -> None:
    """List groups of described videos that show the same, however they are encoded.

    Exits with 1 if there are none.
    """
    from flows.cli.rows.duplicates import list_duplicates  # noqa: PLC0415

    found = list_duplicates(similarity, dataset=dataset, task=task, model=model, form=form, raw=raw)
    raise typer.Exit(0 if found else 1)
