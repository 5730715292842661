"""An environment for each peer: its pinned requirements on top of the packages of the engine and ours.

A peer sees these, so that all peers share one engine, and packages whose versions agree are stored once. Those
that it wants in other versions are installed into its own folder, which comes first on its path.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from reelabel.errors import ReelabelError
from reelabel_engine.environment import find_python

_REQUIREMENTS = Path(__file__).with_name("requirements")
_SHOWN_LINES = 3
_LIMIT_S = 1200.0


def peer_python(peer: str, folder: Path) -> Path:
    """Return the Python of a peer's environment below `folder`, which is made unless it exists.

    Args:
        peer: Name of a peer that has requirements.
        folder: Folder that keeps the environments.

    Raises:
        ReelabelError: The environment cannot be made; the message holds what pip has said last.
    """
    home = (folder / "peers" / peer).absolute()
    wanted = (_REQUIREMENTS / f"{peer}.txt").read_text() + f"# beside {_shared_packages()}\n"
    python, installed = home / "bin/python", home / "requirements.txt"
    if not installed.exists() or installed.read_text() != wanted:
        venv.create(home, clear=True)
        _share_our_packages(home)
        _install(python, _REQUIREMENTS / f"{peer}.txt", peer)
        installed.write_text(wanted)
    return python


def _share_our_packages(home: Path) -> None:
    """Append the engine's packages and ours to the path of an environment; what we have in editable form stays ours."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    shared = "".join(f"{folder}\n" for folder in _shared_packages())
    (home / "lib" / version / "site-packages" / "shared.pth").write_text(shared)


def _shared_packages() -> list[Path]:
    """Return the engine's folder of packages, and ours."""
    folders = [*(Path(find_python().path).parents[1] / "lib").glob("python*/site-packages")]
    return list(dict.fromkeys([*folders, Path(sysconfig.get_path("purelib"))]))


def _install(python: Path, requirements: Path, peer: str) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-warn-conflicts"]
    try:
        done = subprocess.run(  # noqa: S603 - our own pip, for an environment that we made
            [*command, "--requirement", str(requirements)],
            check=False,
            text=True,
            capture_output=True,
            timeout=_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise ReelabelError(f"{peer} was not installed within {_LIMIT_S:g} s; try again.") from None
    if done.returncode:
        last = " ".join(line.strip() for line in done.stderr.splitlines()[-_SHOWN_LINES:])
        raise ReelabelError(f"{peer} cannot be installed ({last}).")
