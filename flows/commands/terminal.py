"""Terminal output of commands; users' text is printed literally."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

# Paths, ids and messages may contain square brackets, which are not markup.
OUT = Console(markup=False, highlight=False)
ERRORS = Console(stderr=True, markup=False, highlight=False)


def print_line(*parts: str | tuple[str, str]) -> None:
    """Print one line without wrapping; a part may be a pair of text and style."""
    OUT.print(Text.assemble(*parts), soft_wrap=True)


def print_error(code: str, message: str) -> None:
    """Print an error's code and message."""
    ERRORS.print(Text.assemble((code, "red"), f": {message}"), soft_wrap=True)
