"""Where benchmarks print: results on standard output, progress on standard error."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from rich.box import MARKDOWN, SIMPLE
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

OUT = Console(width=None if sys.stdout.isatty() else 160)  # a file has no width of its own
PROGRESS = Console(stderr=True)


def figures_table(title: str, headings: Iterable[str], *, names: int = 1, as_markdown: bool = False) -> Table:
    """Return a table without rows, whose first columns hold names, and the others figures."""
    table = Table(title=title, title_justify="left", box=MARKDOWN if as_markdown else SIMPLE)
    for place, heading in enumerate(headings):
        is_name = place < names
        table.add_column(heading, justify="left" if is_name else "right", no_wrap=is_name or as_markdown)
    return table


def print_json(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Print a report for programs, whatever the width of the terminal."""
    print(json.dumps(value, indent=2))  # noqa: T201
