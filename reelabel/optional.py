"""Optional dependencies, and how to install them.

Our own distributions are never installed by name: on a package index, anybody may own that name.
"""

from __future__ import annotations

import json
import shlex
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from reelabel.errors import ConfigurationError

if TYPE_CHECKING:
    from types import ModuleType

_LIBRARY = "reelabel"


def require(module: str, *, extra: str, purpose: str, of: str = _LIBRARY) -> ModuleType:
    """Import a module of an optional dependency, which `extra` of the distribution `of` installs.

    Raises ConfigurationError if it is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{purpose} needs a package that is not installed ({error.name}): `{install_command(extra, of=of)}`."
        ) from None


def install_command(extra: str, *, of: str = _LIBRARY, again: bool = False, python: str | None = None) -> str:
    """Return the command that installs an extra of a distribution here, or into the environment of another `python`.

    It names the folders of the checkout that the distribution was installed from; otherwise, the extra's packages. With
    `again`, those are installed even if they are installed already.
    """
    folders = [_folder(name) for name in dict.fromkeys((_LIBRARY, of))]
    if again or not all(folders):
        stated = (need.replace('"', "'").partition(";") for need in _metadata().requires(of) or ())
        needed = [package.strip() for package, _, marker in stated if marker.strip() == f"extra == '{extra}'"]
        words = [*(["--force-reinstall"] if again else []), *needed]
    else:
        *others, last = folders
        words = [word for words in others for word in words] + [*last[:-1], f"{last[-1]}[{extra}]"]
    return shlex.join([python or sys.executable, "-m", "pip", "install", *words])


def _folder(name: str) -> list[str]:
    """Return pip's arguments for the folder that a distribution was installed from; empty if it was not a folder."""
    origin = json.loads(_metadata().distribution(name).read_text("direct_url.json") or "{}")
    if "dir_info" not in origin:
        return []
    folder = unquote(urlsplit(origin["url"]).path)
    return ["--editable", folder] if origin["dir_info"].get("editable") else [folder]


def _metadata() -> Any:  # noqa: ANN401 - a module, which takes longer to import than NumPy
    return import_module("importlib.metadata")
