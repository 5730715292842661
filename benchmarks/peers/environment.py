"""Creates an environment for each peer: its pinned requirements on top of the engine's packages and ours.

A peer sees these, so that all peers share one engine, and packages whose versions agree are stored once. Those
that it wants in other versions are installed into its own folder, which comes first on its path.
"""

from __future__ import annotations

import sys
import sysconfig
import venv
from pathlib import Path

from benchmarks.harness import pip_install
from reelabel_engine.environment import find_python

_REQUIREMENTS = Path(__file__).with_name("requirements")
_LIMIT_S = 1200.0


def peer_python(peer: str, folder: Path) -> Path:
    """Return the Python of a peer's environment below `folder`, which is made unless it exists."""
    home = (folder / "peers" / peer).absolute()
    wanted = (_REQUIREMENTS / f"{peer}.txt").read_text() + f"# beside {_shared_packages()}\n"
    python, installed = home / "bin/python", home / "requirements.txt"
    if not installed.exists() or installed.read_text() != wanted:
        venv.create(home, clear=True)
        _share_our_packages(home)
        options = ["--python", str(python), "install", "--quiet", "--no-warn-conflicts"]
        pip_install(options, _REQUIREMENTS / f"{peer}.txt", what=peer, limit_s=_LIMIT_S)
        installed.write_text(wanted)
    return python


def _share_our_packages(home: Path) -> None:
    """Append the engine's packages and ours to the path of an environment; what we have in editable form stays ours."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    shared = "".join(f"{folder}\n" for folder in _shared_packages())
    (home / "lib" / version / "site-packages" / "shared.pth").write_text(shared)


def _shared_packages() -> list[Path]:
    folders = [*(Path(find_python().path).parents[1] / "lib").glob("python*/site-packages")]
    return list(dict.fromkeys([*folders, Path(sysconfig.get_path("purelib"))]))
