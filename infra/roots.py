"""The folders that videos of this machine must lie in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.errors import VideoRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def require_within(roots: Iterable[Path], path: Path) -> None:
    """Check that a file lies below one of `roots`, wherever symlinks lead; no roots allow every file.

    Raises:
        VideoRefusedError: It lies elsewhere.
    """
    folders = [root.resolve() for root in roots]
    if folders and not any(path.resolve().is_relative_to(folder) for folder in folders):
        raise VideoRefusedError(f"{path} lies outside extract.allow_roots; move the video there, or add its folder.")
