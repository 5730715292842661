"""The command line's `manifest`: checking manifests, and making them."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.commands.example import example

manifest_app = typer.Typer(
    help="Check manifests, and make them from other formats.",
    epilog="Example: reelabel manifest check jobs.parquet",
    no_args_is_help=True,
)


@manifest_app.command("check")
@example("reelabel manifest check jobs.parquet")
def manifest_check(manifest: Annotated[str, typer.Argument(help="Parquet file of jobs, or a glob.")]) -> None:
    """Check a manifest, and write nothing."""
    from flows.commands.manifest import check  # noqa: PLC0415

    check(manifest)


@manifest_app.command("import")
@example("reelabel manifest import jobs.csv jobs.parquet")
def manifest_import(
    source: Annotated[str, typer.Argument(help="CSV file, OpenAI-batch JSONL, or a benchmark's file or folder.")],
    target: Annotated[str, typer.Argument(help="Parquet file to write.")],
    *,
    layout: Annotated[
        str | None, typer.Option(help="nextqa, mvbench, videomme, or csv with columns of any names.")
    ] = None,
    videos: Annotated[
        str | None, typer.Option(help="Of a layout: folder or s3:// prefix of its videos; else the source's folder.")
    ] = None,
    video_map: Annotated[str | None, typer.Option(help="Of a layout: JSON file from videos to their places.")] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="Of csv: NAME=COLUMN, such as choices=a+b+c; may be given several times."),
    ] = None,
) -> None:
    """Make a manifest from CSV, from OpenAI-batch JSONL or from a benchmark's files, and check it."""
    from flows.commands.manifest import import_manifest  # noqa: PLC0415

    import_manifest(source, target, layout=layout, videos=videos, video_map=video_map, columns=column or [])
