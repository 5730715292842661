"""`--sampler` and its options, the same for every command that samples."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from flows.commands.grouped import choose, with_group
from infra.errors import ConfigurationError
from infra.sampling_settings import SamplerName, SamplingChoice

if TYPE_CHECKING:
    from collections.abc import Callable

_LISTS = ("motion_tasks", "still_tasks")
_SAMPLERS: tuple[str, ...] = get_args(SamplerName)

NumFrames = Annotated[
    int | None, typer.Option(min=1, max=512, help="Frames shown to the model per video.", rich_help_panel="Sampling")
]


def with_sampling(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of `SamplingChoice`, and hand it the whole as `sampling`."""
    hints = {"sampler": f"One of {', '.join(_SAMPLERS)}."} | dict.fromkeys(_LISTS, "Separated by commas.")
    return with_group(command, "sampling", SamplingChoice, panel="Sampling", check=choose_sampling, hints=hints)


def choose_sampling(values: dict[str, Any]) -> SamplingChoice:
    """Check what was given on the command line.

    Raises:
        ConfigurationError: A sampler is unknown, or a number out of bounds.
    """
    sampler = values.get("sampler")
    if sampler is not None and sampler not in _SAMPLERS:
        near = get_close_matches(sampler, _SAMPLERS, n=2, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"choose one of {', '.join(_SAMPLERS)}."
        raise ConfigurationError(f"There is no sampler {sampler}; {hint}")
    lists = {name: _names(given) for name in _LISTS if isinstance(given := values.get(name), str)}
    return choose(SamplingChoice, values | lists)


def _names(text: str) -> list[str]:
    return [name for each in text.split(",") if (name := each.strip())]
