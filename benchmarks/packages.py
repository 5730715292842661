"""Packages that a benchmark compares with, in a folder of its own: nothing of ours is replaced by them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from reelabel.errors import ReelabelError

if TYPE_CHECKING:
    from pathlib import Path


def install_packages(requirements: Path, folder: Path) -> Path:
    """Install pinned packages into a folder, without their dependencies, unless they are there; return its whole path.

    Raises:
        ReelabelError: They cannot be installed.
    """
    home = folder.absolute()
    installed = home / requirements.name
    if not installed.exists() or installed.read_text() != requirements.read_text():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", str(home)]
        done = subprocess.run([*command, "-r", str(requirements)], check=False, text=True, capture_output=True)  # noqa: S603
        if done.returncode:
            last = " ".join(done.stderr.splitlines()[-3:])
            raise ReelabelError(f"The libraries cannot be installed ({last}); check the access to PyPI.")
        installed.write_text(requirements.read_text())
    return home
