"""The folders that local videos must be in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.errors import VideoRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def require_allowed_path(roots: Iterable[Path], path: Path) -> None:
    """Check that a file is below one of `roots`, with symlinks resolved; without roots, every file is allowed.

    Raises:
        VideoRefusedError: It is elsewhere.
    """
    folders = [root.resolve() for root in roots]
    if folders and not any(path.resolve().is_relative_to(folder) for folder in folders):
        raise VideoRefusedError(f"{path} is outside extract.allow_roots; move the video there, or add its folder.")
