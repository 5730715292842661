"""Output files of commands."""

from __future__ import annotations

from pathlib import Path

from infra.errors import ConfigurationError


def require_parent_folder(target: str) -> None:
    """Make sure, before any work, that the folder of an output file exists.

    Raises:
        ConfigurationError: The folder does not exist.
    """
    folder = Path(target).absolute().parent
    if not folder.is_dir():
        raise ConfigurationError(f"Cannot write {target}: folder {folder} does not exist; create it first.")
