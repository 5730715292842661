"""The record of a method, and the registry of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, TypeAlias

from infra.program import APPLICATION
from reelabel.errors import ConfigurationError
from reelabel.origin import install_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.description.scenes.change import Evidence, SceneChanges

Need: TypeAlias = Literal["embeddings", "index", "frames"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneDetector:
    """A way to find changes of scene.

    Attributes:
        name: What users write.
        summary: A phrase for help and forms.
        needs: What it reads: embeddings, the container's index with the frames around candidates, or every frame.
        threshold: The default of its threshold.
        detect: Finds the changes, given the evidence and the threshold.
        extra: The extra that installs what it imports; empty if it needs none.
        package: What it imports of that extra.
        source: What it reproduces; empty if it is original.
    """

    name: str
    summary: str
    needs: frozenset[Need]
    threshold: float
    detect: Callable[[Evidence, float], SceneChanges]
    extra: str = ""
    package: str = ""
    source: str = ""

    def require_installed(self) -> None:
        """Check, before any video is looked at, that what it imports is installed.

        Raises:
            ConfigurationError: It is not.
        """
        if self.package and find_spec(self.package) is None:
            raise ConfigurationError(
                f"The scene method {self.name} needs a package that is not installed ({self.package}): "
                f"`{install_command(self.extra, of=APPLICATION)}`."
            )


_registered: dict[str, SceneDetector] = {}


def register(detector: SceneDetector) -> SceneDetector:
    """Add a method, or replace itself.

    Raises:
        ValueError: Another method has the name.
    """
    if _registered.setdefault(detector.name, detector) is not detector:
        raise ValueError(f"two scene methods are called {detector.name}")
    return detector


def registered() -> dict[str, SceneDetector]:
    """Return the methods by name."""
    return dict(_registered)


def find(name: str) -> SceneDetector:
    """Return a method.

    Raises:
        ConfigurationError: There is none of that name.
    """
    if name in _registered:
        return _registered[name]
    close = get_close_matches(name, _registered, 1)
    hint = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(_registered)}."
    raise ConfigurationError(f"Unknown scene method {name}; {hint}")
