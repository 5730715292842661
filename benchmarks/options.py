"""Options that several benchmarks have, and how lists in options are read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = Path(".reelabel/bench")
MODELS = ("tiny", "100m")
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
Folder = Annotated[
    Path, typer.Option("--folder", help="Folder for generated clips and models; an hour of video takes 2 GB.")
]
Model = Annotated[Literal["tiny", "100m"], typer.Option(help="Model that answers.")]
Rounds = Annotated[int, typer.Option(min=1, max=1000, help="Measured repetitions; the median is reported.")]


def known_names(text: str, known: Sequence[str], option: str) -> tuple[str, ...]:
    """Split names by commas."""
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(known)}.", param_hint=option)
    return names


def whole_numbers(text: str, option: str) -> tuple[int, ...]:
    """Split positive whole numbers by commas."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) >= 1 for part in parts):
        raise typer.BadParameter(
            f"{text!r} is not a list of positive whole numbers, such as 30,600.", param_hint=option
        )
    return tuple(map(int, parts))
