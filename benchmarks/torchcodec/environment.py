"""The environment that TorchCodec runs in: it needs a torch of its own, and FFmpeg's shared libraries."""

from __future__ import annotations

import subprocess
import venv
from ctypes.util import find_library
from pathlib import Path

from reelabel.errors import ReelabelError

_REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_SHOWN_LINES = 3


def torchcodec_python(folder: Path) -> Path:
    """Return the Python of TorchCodec's environment below `folder`, which is made unless it exists.

    Raises:
        ReelabelError: FFmpeg's shared libraries are missing, or the environment cannot be made.
    """
    if find_library("avcodec") is None:
        raise ReelabelError("TorchCodec finds no FFmpeg on this machine; install it: sudo apt-get install ffmpeg.")
    home = folder / "torchcodec"
    python, installed = home / "bin/python", home / _REQUIREMENTS.name
    if not installed.exists() or installed.read_text() != _REQUIREMENTS.read_text():
        venv.create(home, with_pip=True, clear=True)
        _install(python)
        installed.write_text(_REQUIREMENTS.read_text())
    return python


def _install(python: Path) -> None:
    done = subprocess.run(  # noqa: S603 - the interpreter of an environment that we made
        [python, "-m", "pip", "install", "--quiet", "--requirement", _REQUIREMENTS],
        check=False,
        text=True,
        capture_output=True,
    )
    if done.returncode:
        last = " ".join(done.stderr.split("\n")[-_SHOWN_LINES:]).strip()
        raise ReelabelError(f"TorchCodec cannot be installed ({last}); check the access to PyPI and the disk's space.")
