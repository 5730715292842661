"""Dependencies that only some uses of the library need."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from reelabel.errors import ConfigurationError
from reelabel.origin import install_command

if TYPE_CHECKING:
    from types import ModuleType


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import a module of an optional dependency, which an extra of the library installs for a purpose.

    Raises:
        ConfigurationError: It is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{purpose} needs a package that is not installed ({error.name}): `{install_command(extra)}`."
        ) from None
