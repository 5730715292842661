"""`reelabel cache`: its commands and options."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.commands.example import example

cache_app = typer.Typer(help="List cached frame files, and evict old ones.", no_args_is_help=True)


@cache_app.command("ls")
@example("reelabel cache ls")
def cache_list(
    *,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per file.")] = False,
) -> None:
    """List cached files, one per line, with a total at the end."""
    from flows.commands.cache import list_cache  # noqa: PLC0415

    list_cache(as_json=json)


@cache_app.command("gc")
@example("reelabel cache gc --older-than 30d --max-bytes 100G --dry-run")
def cache_collect(
    *,
    older_than: Annotated[str | None, typer.Option(help="Remove files older than this, such as 12h or 30d.")] = None,
    max_bytes: Annotated[
        str | None, typer.Option(help="Then remove the oldest files until at most this is left, such as 100G.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be removed; remove nothing.")] = False,
) -> None:
    """Remove cached files by age or total size; they are created again when needed."""
    from flows.commands.cache import collect_cache  # noqa: PLC0415

    collect_cache(older_than=older_than, max_bytes=max_bytes, dry_run=dry_run)
