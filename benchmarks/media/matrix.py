"""The matrix of test files: every container with every codec it takes, and every structure where it matters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from benchmarks.media.codecs import CODECS, CONTAINERS
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
        """Name of the file: `mp4/h264/plain`."""
        return f"{self.container}/{self.codec}/{self.structure}"

    @property
    def title(self) -> str:
        return PLAIN if self.structure == PLAIN else STRUCTURES[self.structure].title

    @property
    def recipe(self) -> Recipe:
        container, codec = CONTAINERS[self.container], CODECS[self.codec]
        muxer = container.muxer or codec.raw
        recipe = Recipe(encoder=codec.encoder, muxer=muxer, mux_options=container.mux_options)
        recipe = _changed(recipe, codec.changes)
        return recipe if self.structure == PLAIN else _changed(recipe, STRUCTURES[self.structure].changes)

    def make(self) -> bytes:
        """Make the file; the same bytes at every call."""
        return make_clip(self.recipe)


@cache
def matrix() -> tuple[Cell, ...]:
    """Return every cell, plain ones first."""
    plain = [Cell(container, name) for name, codec in CODECS.items() for container in codec.containers.split()]
    special = [
        Cell(container, codec, structure)
        for structure, what in STRUCTURES.items()
        for container, codec in (file.split("/") for file in what.files.split())
    ]
    return (*plain, *special)


def cells_like(prefix: str) -> list[Cell]:
    """Return the cells whose names begin with a prefix, such as `avi` or `avi/mpeg4`."""
    return [cell for cell in matrix() if cell.name.startswith(prefix)]


def _changed(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """Replace fields of a recipe; options are merged."""
    merged: dict[str, Any] = {
        key: {**getattr(recipe, key), **value} if key.endswith("options") else value for key, value in changes.items()
    }
    return replace(recipe, **merged)
