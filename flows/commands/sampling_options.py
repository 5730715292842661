"""`--sampler` and its options, the same for every command that samples."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from pydantic import ValidationError

from infra.errors import ConfigurationError
from infra.settings import SamplerName, SamplingChoice

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic.fields import FieldInfo

_SAMPLERS: tuple[str, ...] = get_args(SamplerName)
_PANEL = "Sampling"


def with_sampling(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of `SamplingChoice`, and hand it the whole as `sampling`."""
    fields = SamplingChoice.model_fields
    signature = inspect.signature(command, eval_str=True)
    options = [_option(name, field) for name, field in fields.items()]

    @wraps(command)
    def called(**values: Any) -> None:  # noqa: ANN401 - the command's own
        chosen = {name: values.pop(name) for name in fields}
        command(**values, sampling=choose_sampling(chosen))

    others = [parameter for parameter in signature.parameters.values() if parameter.name != "sampling"]
    called.__signature__ = signature.replace(parameters=[*others, *options])  # type: ignore[attr-defined]
    return called


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
    try:
        return SamplingChoice(**values)
    except ValidationError as error:
        fault = error.errors()[0]
        raise ConfigurationError(f"{_flag(str(fault['loc'][0]))} {fault['input']}: {fault['msg']}.") from None


def _option(name: str, field: FieldInfo) -> inspect.Parameter:
    kind: Any = next(iter(get_args(field.annotation)))
    text = f"{field.description} One of {', '.join(_SAMPLERS)}." if name == "sampler" else field.description
    option = typer.Option(_flag(name), help=text, rich_help_panel=_PANEL)
    # Literals as text: our own sentence names the sampler that is nearest.
    kind = kind if isinstance(kind, type) else str
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
