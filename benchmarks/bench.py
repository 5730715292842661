"""A benchmark as `python -m benchmarks` offers it, and the options that several of them have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FOLDER = Path(".reelabel/bench")

AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
ClipFolder = Annotated[
    Path, typer.Option("--folder", help="Folder that keeps generated clips; an hour of video takes 2 GB.")
]
ModelFolder = Annotated[Path, typer.Option("--folder", help="Folder that keeps generated model folders.")]
Lengths = Annotated[str, typer.Option("--lengths", help="Clip lengths in seconds, comma-separated.")]
Rounds = Annotated[int, typer.Option(min=1, max=1000, help="Measured repetitions; the median is reported.")]
Plot = Annotated[str | None, typer.Option(help="Also draw the results to this SVG file.")]


@dataclass(frozen=True, slots=True)
class Bench:
    """A benchmark.

    Attributes:
        run: Runs it; its name, parameters and docstring are those of the command. It imports what it measures when it
            is called, so that `--help` need not.
        example: Example in its help, from the command's name on.
    """

    run: Callable[..., None]
    example: str


def known_names(text: str, known: Sequence[str], option: str) -> tuple[str, ...]:
    """Split names by commas.

    Raises:
        typer.BadParameter: One is not known.
    """
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(known)}.", param_hint=option)
    return names


def whole_numbers(text: str, option: str) -> tuple[int, ...]:
    """Split positive whole numbers by commas.

    Raises:
        typer.BadParameter: One is something else.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) >= 1 for part in parts):
        raise typer.BadParameter(
            f"{text!r} is not a list of positive whole numbers, such as 30,600.", param_hint=option
        )
    return tuple(map(int, parts))
