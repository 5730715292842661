"""Terminal output, and checks of output files."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from reelabel.errors import ConfigurationError

# Paths, ids and messages may contain square brackets, which are not markup.
OUT = Console(markup=False, highlight=False)
ERRORS = Console(stderr=True, markup=False, highlight=False)


def print_line(*parts: str | tuple[str, str]) -> None:
    """Print one line without wrapping; a part may be a pair of text and style."""
    OUT.print(Text.assemble(*parts), soft_wrap=True)


def print_error(code: str, message: str) -> None:
    """Print an error's code and message."""
    ERRORS.print(Text.assemble((code, "red"), f": {message}"), soft_wrap=True)


def require_parent_folder(target: str) -> None:
    """Make sure, before any work, that the folder of an output file exists.

    Raises:
        ConfigurationError: The folder does not exist.
    """
    folder = Path(target).absolute().parent
    if not folder.is_dir():
        raise ConfigurationError(f"Cannot write {target}: folder {folder} does not exist; create it first.")
