"""`reelabel cache`."""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ByteSize, TypeAdapter

from flows.cli.context import running_services
from flows.cli.options import example
from infra.embedded import ServiceName
from infra.program import command_with_settings
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from reelabel.text import escape_controls, pluralize
from tasks.frame_cache.eviction import cached_files, evict, kind_of

if TYPE_CHECKING:
    from reelabel.sources.object_store import ObjectInfo

_UNITS_S = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}

commands = typer.Typer()


@commands.command("ls")
@example("reelabel cache ls")
def list_cache(
    *, json: Annotated[bool, typer.Option("--json", help="Print one JSON object per file.")] = False
) -> None:
    """List cached files, one per line, with a total at the end."""
    counts, sizes = Counter[str](), Counter[str]()
    with running_services(ServiceName.S3) as settings:
        assert settings.store.uri is not None
        for info in cached_files(ObjectStore(settings.store, settings.web), settings.store.uri):
            counts[kind_of(info)] += 1
            sizes[kind_of(info)] += info.size_bytes
            print(_line(info, as_json=json))  # noqa: T201 - may be piped
    if not json:
        print(f"{pluralize(counts.total(), 'file')}, {sizes.total():,} bytes", file=sys.stderr)  # noqa: T201
        for kind, count in counts.most_common():
            print(f"{kind}: {count:,}, {sizes[kind]:,} bytes", file=sys.stderr)  # noqa: T201


@commands.command("gc")
@example("reelabel cache gc --older-than 30d --max-bytes 100G --dry-run")
def collect_cache(
    *,
    older_than: Annotated[str | None, typer.Option(help="Remove files older than this, such as 12h or 30d.")] = None,
    max_bytes: Annotated[
        str | None, typer.Option(help="Then remove the oldest files until at most this much is left, such as 100G.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be removed; remove nothing.")] = False,
) -> None:
    """Remove cached files by age or total size; they are created again when needed."""
    if older_than is None and max_bytes is None:
        raise ConfigurationError("No limit given; use --older-than 30d, --max-bytes 100G, or both.")
    before = None if older_than is None else _before(older_than)
    limit_bytes = None if max_bytes is None else _size_bytes(max_bytes)
    with running_services(ServiceName.S3) as settings:
        assert settings.store.uri is not None
        objects = ObjectStore(settings.store, settings.web)
        room = evict(objects, settings.store.uri, written_before=before, max_bytes=limit_bytes, dry_run=dry_run)
    verb = "Would remove" if dry_run else "Removed"
    print(  # noqa: T201
        f"{verb} {room.removed:,} files of {room.removed_bytes:,} bytes; "
        f"{room.kept:,} files of {room.kept_bytes:,} bytes are left."
    )
    if dry_run:
        print(f"To remove them: {command_with_settings('cache gc', older_than=older_than, max_bytes=max_bytes)}")  # noqa: T201


def _line(info: ObjectInfo, *, as_json: bool) -> str:
    written = info.modified.isoformat(timespec="seconds") if info.modified else ""
    if as_json:
        return dumps(asdict(info) | {"modified": written, "kind": kind_of(info)})
    return f"{written}  {info.size_bytes:>12,}  {escape_controls(info.uri)}"


def _before(age: str) -> datetime:
    found = re.fullmatch(r"(\d+)([mhdw])", age)
    if found is None:
        raise ConfigurationError(f"--older-than {age} is not an age; use m, h, d or w, such as 12h, 30d or 8w.")
    try:
        return datetime.now(UTC) - timedelta(seconds=int(found[1]) * _UNITS_S[found[2]])
    except (OverflowError, ValueError):  # ValueError: of more digits than Python converts
        raise ConfigurationError(f"--older-than {age} is before the year 1; use a shorter age.") from None


def _size_bytes(text: str) -> int:
    if not re.fullmatch(r"\d+(\.\d+)?\s*([KMGT]i?)?B?", text, re.IGNORECASE):  # pydantic ignores trailing text
        raise ConfigurationError(
            f"--max-bytes {text} is not a size; use a number of bytes, or a suffix as in 500M or 100G."
        )
    return TypeAdapter(ByteSize).validate_python(text)
