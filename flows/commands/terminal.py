"""What a command writes for people: a user's text is printed as it is."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

# Paths, ids and messages may hold square brackets: nothing is taken for markup.
OUT = Console(markup=False, highlight=False)
ERRORS = Console(stderr=True, markup=False, highlight=False)


def say(*parts: str | tuple[str, str]) -> None:
    """Print one line, however long; a part may be a pair of text and style."""
    OUT.print(Text.assemble(*parts), soft_wrap=True)


def complain(code: str, message: str) -> None:
    """Print an error's stable code and its sentence."""
    ERRORS.print(Text.assemble((code, "red"), f": {message}"), soft_wrap=True)
