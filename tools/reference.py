"""Writes the generated files of the documentation: `python -m tools.reference`.

docs/settings.md is the output of `reelabel config --format markdown`; docs/cli.md, docs/samplers.md, the tables of
columns in docs/results.md, and the JSON Schema of live sessions in docs/live-protocol.json are generated here.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import typer
from pydantic.json_schema import GenerateJsonSchema, models_json_schema
from rich.text import Text
from sqlalchemy.dialects import postgresql
from typer.core import TyperGroup

from flows.cli.main import COMMANDS, app
from flows.cli.operations.services import settings_page
from reelabel.sampling.registry import BUILT_IN
from tasks.database.columns import in_reading_order
from tasks.database.tables import CHUNK, FAILURE, RESULT, RUN
from tasks.live import events, messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Column, Table

_DOCS = Path(__file__).resolve().parents[1] / "docs"
_BAR = "\\|"  # within a cell of a table
_TABLE = re.compile(r"^\|.*(?:\n\|.*)*", re.MULTILINE)
_WRITTEN = "Written by `python -m tools.reference`; a test checks that it is up to date."


def pages() -> dict[str, str]:
    return {
        "cli.md": _commands(),
        "samplers.md": _samplers(),
        "results.md": _results(),
        "settings.md": settings_page(),
        "live-protocol.json": _live_protocol(),
    }


def _results() -> str:
    """Return the page of results with its tables of the database's columns."""
    page, described = (_DOCS / "results.md").read_text(encoding="utf-8"), set[tuple[str, str | None]]()
    for table in (RESULT, FAILURE, CHUNK, RUN):
        before, heading, after = page.partition(f"## `reelabel.{table.name}`\n")
        columns = _columns(table, described).replace("\\", r"\\")
        page = before + heading + _TABLE.sub(columns, after, count=1)
    return page


def _columns(table: Table, described: set[tuple[str, str | None]]) -> str:
    """Return the rows of a table of columns; columns that an earlier table describes share the last row."""
    columns = in_reading_order(table)
    own = [column for column in columns if (column.name, column.comment) not in described]
    known = ", ".join(f"`{column.name}`" for column in columns if column not in own)
    described.update((column.name, column.comment) for column in own)
    rows = [f"| `{column.name}` | {_type(column)} | {column.comment} |" for column in own]
    return "\n".join(["| column | type | |", "|---|---|---|", *rows, *([f"| {known} | | as above |"] if known else [])])


def _type(column: Column[Any]) -> str:
    dialect: Any = postgresql.dialect  # without types
    return column.type.compile(dialect=dialect()).lower()


def _commands() -> str:
    shared = (
        "Every command takes `--help`, `--help-all` if `--help` leaves rare options out (marked *rare* here), and\n"
        "`--set SECTION.NAME=VALUE`, which changes a [setting](settings.md) for one command."
    )
    codes = (
        "Exit codes: 0 done; 1 failed, or finished with failures, rejected rows or not reconciled; 2 usage or\n"
        "configuration; 130 stopped by Ctrl-C, 143 by SIGTERM. [Troubleshooting](troubleshooting.md) explains the\n"
        "codes of errors."
    )
    lines = ["# Commands\n", f"{_WRITTEN}\n", f"{shared}\n", f"{codes}\n"]
    group: Any = typer.main.get_command(app)
    context = typer.Context(group)
    panel = ""
    for name, listed in COMMANDS.items():
        if listed.panel != panel:
            panel = listed.panel
            lines.append(f"## {panel}\n")
        for path, command in _leaves(name, group.get_command(context, name)):
            lines += _command(path, command)
    return "\n".join(lines)


def _leaves(path: str, command: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - Typer's own types
    if not isinstance(command, TyperGroup):
        yield path, command
        return
    context = typer.Context(command)
    for name in command.list_commands(context):
        yield from _leaves(f"{path} {name}", command.get_command(context, name))


def _command(path: str, command: Any) -> Iterator[str]:  # noqa: ANN401 - Typer's own types
    yield f"### `reelabel {path}`\n"
    about, _, sample = Text.from_markup(command.help).plain.partition("Example: ")
    yield f"{_plain(about)}\n"
    if sample:
        yield f"```console\n{sample.strip()}\n```\n"
    shown = [param for param in command.params if param.name not in {"help", "settings", "show_all"}]
    if shown:
        yield "| | default | |"
        yield "|---|---|---|"
    for param in shown:
        names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts) if name)
        if not names.startswith("`-"):
            names = f"`{(param.metavar or param.name).upper()}`"
        default = f"`{param.default}`" if param.default and not param.required else ""
        rare = " *Rare.*" if getattr(param, "hidden", False) else ""
        cells = (names, default, _plain(param.help) + rare)
        yield f"| {' | '.join(text.replace('|', _BAR) for text in cells)} |"
    yield ""


def _samplers() -> str:
    lines = [
        "# Samplers\n",
        f"{_WRITTEN}\n`reelabel samplers` lists the installed ones.\n",
        "[Frame sampling](frames.md) explains how to choose one; options are those of `reelabel classify`.\n",
        "| sampler | shows | options | model types |",
        "|---|---|---|---|",
    ]
    for spec in BUILT_IN.values():
        names = ", ".join(f"`{name}`" for name in (spec.name, *spec.aliases))
        fields = ["num_frames"] * spec.uses_num_frames + sorted(spec.options - {"times_ms"})
        options = ", ".join(f"`--{field.replace('_', '-')}`" for field in fields)
        models = ", ".join(f"`{name}`" for name in sorted(spec.model_types))
        lines.append(f"| {names} | {spec.summary} | {options} | {models} |")
    return "\n".join(lines) + "\n"


class _WithoutTitles(GenerateJsonSchema):
    """Gives fields no titles, which would repeat their names."""

    def field_title_should_be_set(self, schema: object) -> bool:
        del schema
        return False


def _live_protocol() -> str:
    """Return the schema: a client's messages are `oneOf` under `$defs.client`, the server's events under `server`."""
    client, server = get_args(get_args(messages.ClientMessage)[0]), get_args(events.Event)
    models = [(model, "validation") for model in client] + [(model, "serialization") for model in server]
    references, definitions = models_json_schema(models, schema_generator=_WithoutTitles)  # type: ignore[arg-type]  # the literals of the two modes
    defs = dict(definitions["$defs"])
    defs["client"] = {"oneOf": [references[model, "validation"] for model in client]}
    defs["server"] = {"oneOf": [references[model, "serialization"] for model in server]}
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Messages of WebSocket /v1/video/chat/stream",
        "oneOf": [{"$ref": "#/$defs/client"}, {"$ref": "#/$defs/server"}],
        "$defs": defs,
    }
    return json.dumps(whole, indent=2) + "\n"


def _plain(text: str | None) -> str:
    """Return a help text as Markdown, with each paragraph on one line."""
    paragraphs = re.split(r"\n\s*\n", (text or "").strip())
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)


if __name__ == "__main__":
    for name, text in pages().items():
        (_DOCS / name).write_text(text, encoding="utf-8")
