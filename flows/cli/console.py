"""Terminal output, and checks of output files."""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from infra.logs import logs_are_json
from infra.program import with_program_name
from reelabel.errors import ConfigurationError
from reelabel.text import escape_controls

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from rich.console import ConsoleOptions, RenderableType
    from rich.segment import Segment


class SafeConsole(Console):
    """A console that escapes terminal control sequences in texts; only its own styles and movements are sent.

    Texts are neither markup nor emoji codes: paths, ids and messages may contain square brackets and colons.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=escape_controls(segment.text, keep="\n"))


_MAX_TIMES = 16
_FOLDED_WIDTH = 10  # minimum width of a column that is wrapped next to others that are not

OUT = SafeConsole()
ERRORS = SafeConsole(stderr=True)


def cell(value: object) -> Text:
    """Return a value for a table or a status line: on one line, and never markup; None is empty."""
    if isinstance(value, Text):
        return value
    shown = f"{value:.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
    return Text(escape_controls(str("" if shown is None else shown)))


def make_table(
    columns: Sequence[str],
    rows: Iterable[Iterable[object]],
    *,
    title: str = "",
    numbers: int = 0,
    plain: bool = False,
    unbroken: Collection[str] = (),
) -> Table:
    """Return a table whose long words are broken, not cut.

    The last `numbers` columns are figures; `plain` draws no lines. Columns in `unbroken` keep their width, even if the
    table is then wider than the terminal: print it with `crop=False`.
    """
    style: dict[str, Any] = {"box": None, "pad_edge": False, "title_justify": "left"} if plain else {}
    table = Table(title=cell(title) if title else None, **style)
    for at, name in enumerate(columns):
        table.add_column(name, overflow="fold", justify="right" if at >= len(columns) - numbers else "left")
    for row in rows:
        table.add_row(*map(cell, row))
    for column in table.columns if unbroken else ():
        width = max(each.cell_len for each in (Text(str(column.header)), *map(cell, column.cells)))
        column.no_wrap = column.header in unbroken
        column.min_width = width if column.no_wrap else min(width, _FOLDED_WIDTH)
    return table


def print_line(*parts: str | tuple[str, str]) -> None:
    """Print one line without wrapping; a part may be a pair of text and style, and commands use this program's name."""
    pairs = [(part, "") if isinstance(part, str) else part for part in parts]
    OUT.print(
        Text.assemble(*((escape_controls(with_program_name(text)), style) for text, style in pairs)), soft_wrap=True
    )


def print_notice(message: str, *, console: SafeConsole = ERRORS) -> None:
    """Print a sentence, or log it if the log format is JSON."""
    if logs_are_json():
        logging.getLogger("reelabel").info("%s", message)
    else:
        console.print(with_program_name(message), soft_wrap=True)


def print_warning(message: str) -> None:
    if message:
        ERRORS.print(f"{message}.", style="yellow", soft_wrap=True)


def print_error(code: str, message: str) -> None:
    """Print an error's code and message, which may have several lines, or log it if the log format is JSON."""
    if logs_are_json():
        logging.getLogger("reelabel").error("%s", message, extra={"code": code})
        return
    ERRORS.print(Text.assemble((code, "red"), f": {with_program_name(message)}"), soft_wrap=True)


def print_json(value: object) -> None:
    """Print JSON for programs: never wrapped, whatever the terminal's width is."""
    print(json.dumps(value, indent=2, default=str))  # noqa: T201


@contextmanager
def status_of(doing: str) -> Iterator[Callable[[str], None]]:
    """Show the current step on standard error; yield a function that takes the progress."""
    with ERRORS.status(cell(doing)) as status:
        yield lambda done: status.update(cell(f"{doing}: {done}"))


def list_times(times_s: Iterable[float]) -> list[str]:
    counts = Counter(times_s)
    times = [f"{time_s:.3f} s" + (f" ({count}x)" if count > 1 else "") for time_s, count in counts.items()]
    return times if len(times) <= _MAX_TIMES else [*times[:_MAX_TIMES], f"and {len(times) - _MAX_TIMES:,} more"]


class Sink(Protocol):
    def write(self, data: bytes, /) -> Any:  # noqa: ANN401 - files return different things
        ...


class TerminalSink:
    """Shows the lines of a text file on the terminal, with symbols for invisible characters."""

    def write(self, data: bytes, /) -> None:
        sys.stdout.write(escape_controls(data.decode(), keep="\n"))


def text_sink() -> Sink:
    """Return standard output for a text file: exact for a file or a pipe, escaped for a terminal."""
    return TerminalSink() if sys.stdout.isatty() else sys.stdout.buffer


def require_format(form: str, *known: str) -> None:
    """Refuse an unknown output format, before any work."""
    if form not in known:
        raise ConfigurationError(f"Unknown --format {form}; use {', '.join(known[:-1])} or {known[-1]}.")


def require_parent_folder(target: str) -> None:
    """Refuse an output file whose folder does not exist, or that is a folder itself, before any work."""
    folder = Path(target).absolute().parent
    if not folder.is_dir():
        raise ConfigurationError(f"Cannot write {target}: folder {folder} does not exist; create it first.")
    if Path(target).is_dir():
        raise ConfigurationError(f"Cannot write {target}: it is a folder; name a file.")


def write_output(target: str | Path, content: str | bytes) -> None:
    """Write a file that the user has named, at once, so that an earlier one stays whole if this fails.

    What is no regular file, such as /dev/stdout, is written to as it is.
    """
    from reelabel.sources.local import FileStore  # noqa: PLC0415 - `--help` needs no stores

    path, data = Path(target).absolute(), content.encode() if isinstance(content, str) else content
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.write_bytes(data)
    else:
        FileStore().replace(path.as_uri(), data)


def require_sheet(target: str) -> None:
    """Refuse a contact sheet that cannot be written, before any work."""
    from PIL import Image  # noqa: PLC0415 - slow to import, for two commands

    require_parent_folder(target)
    if Image.registered_extensions().get(Path(target).suffix.lower()) not in Image.SAVE:
        raise ConfigurationError(f"--sheet {target} is not an image file; use a name such as sheet.png.")
