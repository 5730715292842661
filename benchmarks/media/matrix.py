"""The matrix: every container with every codec that it takes, and every structure where it matters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from benchmarks.media.codecs import CODECS
from benchmarks.media.containers import CONTAINERS
from benchmarks.media.recipe import Recipe, make_clip
from benchmarks.media.structures import STRUCTURES

if TYPE_CHECKING:
    from collections.abc import Mapping

PLAIN = "plain"


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One file of the matrix."""

    container: str
    codec: str
    structure: str = PLAIN

    @property
    def name(self) -> str:
        """Give its name: `mp4/h264/plain`."""
        return f"{self.container}/{self.codec}/{self.structure}"

    @property
    def title(self) -> str:
        """Say its structure as the document does."""
        return PLAIN if self.structure == PLAIN else STRUCTURES[self.structure].title

    @property
    def recipe(self) -> Recipe:
        """Say how it is made."""
        container, codec = CONTAINERS[self.container], CODECS[self.codec]
        muxer = container.muxer or codec.raw
        recipe = Recipe(encoder=codec.encoder, muxer=muxer, mux_options=container.mux_options)
        recipe = _changed(recipe, codec.changes)
        return recipe if self.structure == PLAIN else _changed(recipe, STRUCTURES[self.structure].changes)

    def make(self) -> bytes:
        """Make the file, the same at every call."""
        return make_clip(self.recipe)


@cache
def matrix() -> tuple[Cell, ...]:
    """List every cell, plain ones first."""
    plain = [Cell(container, name) for name, codec in CODECS.items() for container in codec.containers.split()]
    special = [
        Cell(container, codec, structure)
        for structure, what in STRUCTURES.items()
        for container, codec in (file.split("/") for file in what.files.split())
    ]
    return (*plain, *special)


def _changed(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """Replace fields of a recipe; options are added to those that it has."""
    merged: dict[str, Any] = {
        key: {**getattr(recipe, key), **value} if key.endswith("options") else value for key, value in changes.items()
    }
    return replace(recipe, **merged)
