"""The command line's `cache`: what is cached, and making room."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.commands.example import example

cache_app = typer.Typer(help="List the cached frame files, and make room among them.", no_args_is_help=True)


@cache_app.command("ls")
@example("reelabel cache ls")
def cache_list(
    *,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object per file.")] = False,
) -> None:
    """Print one line per cached file, then their number and bytes."""
    from flows.commands.cache import list_cache  # noqa: PLC0415

    list_cache(as_json=json)


@cache_app.command("gc")
@example("reelabel cache gc --older-than 30d --max-bytes 100G --dry-run")
def cache_collect(
    *,
    older_than: Annotated[str | None, typer.Option(help="Remove files written longer ago, such as 12h or 30d.")] = None,
    max_bytes: Annotated[str | None, typer.Option(help="Then the oldest, until so much stays, such as 100G.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing, and say what would go.")] = False,
) -> None:
    """Make room in the cache: files that went are made anew when they are needed."""
    from flows.commands.cache import collect_cache  # noqa: PLC0415

    collect_cache(older_than=older_than, max_bytes=max_bytes, dry_run=dry_run)
