"""`reelabel manifest`: its commands and options."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.commands.example import example

manifest_app = typer.Typer(
    help="Check manifests, and convert other formats to manifests.",
    epilog="Example: reelabel manifest check jobs.parquet",
    no_args_is_help=True,
)


@manifest_app.command("check")
@example("reelabel manifest check jobs.parquet")
def manifest_check(manifest: Annotated[str, typer.Argument(help="Parquet file of jobs, or a glob.")]) -> None:
    """Validate a manifest, and report every error."""
    from flows.commands.manifest import check  # noqa: PLC0415

    check(manifest)


@manifest_app.command("import")
@example("reelabel manifest import jobs.csv jobs.parquet")
def manifest_import(
    source: Annotated[str, typer.Argument(help="CSV file, OpenAI batch JSONL file, or a benchmark's file or folder.")],
    target: Annotated[str, typer.Argument(help="Parquet file to write.")],
    *,
    layout: Annotated[
        str | None, typer.Option(help="nextqa, mvbench, videomme, or csv for any column names (see --column).")
    ] = None,
    videos: Annotated[
        str | None,
        typer.Option(help="With --layout: folder or s3:// prefix of the videos. Default: the source's folder."),
    ] = None,
    video_map: Annotated[
        str | None, typer.Option(help="With --layout: JSON file that maps video names to paths.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="With --layout csv: NAME=COLUMN, such as choices=a+b+c; repeatable."),
    ] = None,
) -> None:
    """Convert CSV, OpenAI batch JSONL or a benchmark's files to a manifest, and validate it."""
    from flows.commands.manifest import import_manifest  # noqa: PLC0415

    import_manifest(source, target, layout=layout, videos=videos, video_map=video_map, columns=column or [])
