"""The options `--num-frames`, `--sampler` and those of each sampler."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from flows.commands.grouped import choose, with_option_group
from infra.errors import ConfigurationError
from infra.sampling_settings import SamplerName, SamplingOptions

if TYPE_CHECKING:
    from collections.abc import Callable

_LISTS = ("motion_tasks", "still_tasks")
_SAMPLERS: tuple[str, ...] = get_args(SamplerName)

NumFrames = Annotated[int | None, typer.Option(min=1, max=512, help="Frames per video.", rich_help_panel="Sampling")]


def with_sampling(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each field of `SamplingOptions` to a command, which receives them as `sampling`."""
    hints = {"sampler": f"One of {', '.join(_SAMPLERS)}."} | dict.fromkeys(_LISTS, "Comma-separated.")
    return with_option_group(command, "sampling", SamplingOptions, panel="Sampling", check=choose_sampling, hints=hints)


def choose_sampling(values: dict[str, Any]) -> SamplingOptions:
    """Validate the values given on the command line.

    Raises:
        ConfigurationError: The sampler is unknown, or a number out of bounds.
    """
    sampler = values.get("sampler")
    if sampler is not None and sampler not in _SAMPLERS:
        near = get_close_matches(sampler, _SAMPLERS, n=2, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(_SAMPLERS)}."
        raise ConfigurationError(f"Unknown sampler {sampler}; {hint}")
    lists = {name: _names(given) for name in _LISTS if isinstance(given := values.get(name), str)}
    return choose(SamplingOptions, values | lists)


def _names(text: str) -> list[str]:
    return [name for each in text.split(",") if (name := each.strip())]
