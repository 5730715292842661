"""Where a command is to write."""

from __future__ import annotations

from pathlib import Path

from infra.errors import ConfigurationError


def require_folder(target: str) -> None:
    """Make sure, before the work, that a file can be put where the user wants it.

    Raises:
        ConfigurationError: Its folder does not exist.
    """
    folder = Path(target).absolute().parent
    if not folder.is_dir():
        raise ConfigurationError(f"There is no folder {folder} to write {target} into; make it first.")
