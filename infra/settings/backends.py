"""The names that `model.backend` may have: ours, those of installed packages, and those that a program registers."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ENTRY_POINT_GROUP = "reelabel.backends"

# Imported on use: settings must not import what runs a model.
_OURS = {
    "vllm": "tasks.model.engine.vllm_backend:VLLM",
    "openai": "tasks.model.server.openai_backend:OPENAI",
}
_LOADERS: dict[str, Callable[[], object]] = {
    name: EntryPoint(name, value, ENTRY_POINT_GROUP).load for name, value in _OURS.items()
}


def add_backend(name: str, load: Callable[[], object]) -> None:
    """Make a backend known to this process; `load` returns its record."""
    _LOADERS[name] = load


def backend_names() -> list[str]:
    """Return the names of all backends."""
    return list(dict.fromkeys([*_LOADERS, *sorted(entry_points(group=ENTRY_POINT_GROUP).names)]))


def load_backend(name: str) -> object:
    """Import the record of a backend.

    Raises:
        ValueError: There is no backend of that name.
    """
    return _loader(name)()


def check_backend_name(name: str) -> str:
    """Return the name of a backend.

    Raises:
        ValueError: There is no backend of that name. The message has no full stop.
    """
    _loader(name)
    return name


def add_backend_names(schema: dict[str, object]) -> None:
    """List the backends in a JSON schema."""
    schema["enum"] = backend_names()


def _loader(name: str) -> Callable[[], object]:
    if name in _LOADERS:  # first, because listing the installed packages takes milliseconds
        return _LOADERS[name]
    for found in entry_points(group=ENTRY_POINT_GROUP, name=name):
        return found.load
    raise ValueError(f"there is no such backend; use one of {', '.join(backend_names())}")
