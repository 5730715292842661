"""The image-text model that a run uses, by its name or folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tasks.model.identity import read_model_card

if TYPE_CHECKING:
    from tasks.model.identity import ModelCard

TINY_TOWERS = Path(__file__).parents[1] / "demo" / "reelabel-tiny-siglip"


def read_towers_card(name: str | None, *, revision: str | None = None) -> ModelCard:
    """Read a model's configuration; `None` is the tiny model that ships with Reelabel.

    Raises:
        ModelError: As `read_model_card`.
    """
    return read_model_card(name or str(TINY_TOWERS), revision=revision)
