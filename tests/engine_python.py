"""The engine's Python: what imports PyTorch, transformers, OpenCV or vLLM runs in it, in a process of its own."""

import os
import subprocess
import sysconfig
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from reelabel_engine.environment import engine_environment, find_python
from reelabel_engine.protocol import EngineConfig
from tasks.model.identity import TINY_MODEL

ROOT = Path(__file__).parents[1]
HERE = Path(sysconfig.get_path("purelib"))


def engine_python():
    return find_python().path


def run_by_engine(*arguments, check=True, beside=(), **options):
    """Run the engine's Python, which finds this checkout's modules.

    Args:
        arguments: Of the command.
        check: As for `subprocess.run`, which takes the other options.
        beside: Further folders of packages.
    """
    environment = engine_environment(EngineConfig(model=str(TINY_MODEL)))
    folders = [environment.get("PYTHONPATH"), str(ROOT), *map(str, beside)]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    command = [engine_python(), *map(str, arguments)]
    return subprocess.run(command, check=check, env=environment, **options)


def link_beside_engine(names, folder):
    """Link distributions of this environment, with all that they need, unless the engine's Python has them."""
    folder.mkdir()
    wanted = set().union(*(needed_by(name, HERE) for name in names))
    link([name for name in wanted if not _find(name, None)], folder, HERE)
    return folder


def engine_packages():
    """The folder in which the packages of the engine's Python are."""
    [site] = (Path(engine_python()).parents[1] / "lib").glob("python*/site-packages")
    return site


def installed(name, site=None):
    """A distribution of the engine's Python, or of another folder of packages.

    Raises:
        PackageNotFoundError: It is not installed there.
    """
    found = next(iter(Distribution.discover(name=name, path=[str(site or engine_packages())])), None)
    if found is None:
        raise PackageNotFoundError(name)
    return found


def needed_by(name, site=None):
    """Names of what a distribution, with its extras, needs, itself included, of those that are installed there."""
    wanted = Requirement(name)
    seen, left = set(), {(wanted.name, extra) for extra in ("", *wanted.extras)}
    while left:
        seen |= left
        left = {each for name, extra in left for each in _needs(name, extra, site)} - seen
    return {name for name, _ in seen if _find(name, site)}


def link(names, folder, site=None):
    """Link the files of distributions into a folder of packages, unless it has them."""
    site = site or engine_packages()
    for name in names:
        for top in {file.parts[0] for file in installed(name, site).files} - {"..", "__pycache__"}:
            if not top.endswith(".pth") and not (folder / top).exists():
                (folder / top).symlink_to(site / top)


def _needs(name, extra, site):
    """Yield what a distribution needs; what is linked to CUDA is not installed on a CPU."""
    distribution = _find(name, site)
    for need in map(Requirement, (distribution and distribution.requires) or ()):
        if need.marker is None or need.marker.evaluate({"extra": extra}):
            yield from ((canonicalize_name(need.name), wanted) for wanted in ("", *need.extras))


def _find(name, site):
    try:
        return installed(name, site)
    except PackageNotFoundError:
        return None
