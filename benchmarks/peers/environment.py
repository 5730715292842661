"""Creates an environment for each peer: its pinned requirements on top of the engine's packages and ours.

A peer sees these, so that all peers share one engine, and packages whose versions agree are stored once. Those
that it wants in other versions are installed into its own folder, which comes first on its path.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

from benchmarks.harness import make_environment
from reelabel_engine.environment import find_python

_REQUIREMENTS = Path(__file__).with_name("requirements")


def peer_python(peer: str, folder: Path) -> Path:
    """Return the Python of a peer's environment below `folder`, which is made unless it exists."""
    return make_environment(
        folder / "peers" / peer,
        _REQUIREMENTS / f"{peer}.txt",
        what=peer,
        options=["--no-warn-conflicts"],
        shared=_shared_packages(),
    )


def _shared_packages() -> list[Path]:
    folders = [*(Path(find_python().path).parents[1] / "lib").glob("python*/site-packages")]
    return list(dict.fromkeys([*folders, Path(sysconfig.get_path("purelib"))]))
