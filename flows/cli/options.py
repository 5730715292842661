"""Shared options: a command gets one for each field of a model, and receives the model."""

from __future__ import annotations

import inspect
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

import typer
from pydantic import BaseModel, ValidationError

from infra.settings import PromptOptions
from infra.settings.sampling import SamplingOptions
from reelabel.errors import ConfigurationError
from reelabel.sampling.options import describe_samplers
from reelabel.sampling.registry import find_sampler
from tasks.results.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic.fields import FieldInfo


def example(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """End a command's help with an example."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        function.__doc__ = f"{function.__doc__}\n\n[dim]Example:[/dim] {text}"
        return function

    return add


Choice = TypeVar("Choice", bound=BaseModel)


def with_option_group(
    command: Callable[..., None],
    group: str,
    model: type[Choice],
    *,
    panel: str,
    check: Callable[[dict[str, Any]], Choice],
    hints: Mapping[str, str] | None = None,
) -> Callable[..., None]:
    """Replace a command's parameter with an option for each field of its model.

    Args:
        command: Function with a parameter `group`.
        group: Name of that parameter.
        model: Its type; every field is optional, and its description is the option's help.
        panel: Title of the options in the command's help.
        check: Builds the model from the given values.
        hints: Additions to the help, by field.
    """
    fields = model.model_fields
    signature = inspect.signature(command, eval_str=True)
    options = [_option(name, field, panel, (hints or {}).get(name)) for name, field in fields.items()]

    @wraps(command)
    def called(**values: Any) -> None:  # noqa: ANN401 - the command's own
        chosen = {name: value for name in fields if (value := values.pop(name)) is not None}
        command(**values, **{group: check(chosen)})

    others = [parameter for parameter in signature.parameters.values() if parameter.name != group]
    called.__signature__ = signature.replace(parameters=[*others, *options])  # type: ignore[attr-defined]
    return called


def choose(model: type[Choice], values: dict[str, Any]) -> Choice:
    """Validate the values given on the command line.

    Raises:
        ConfigurationError: A value is invalid; the message names its option.
    """
    try:
        return model(**values)
    except ValidationError as error:
        fault = error.errors()[0]
        reason = fault["msg"].removeprefix("Value error, ")
        raise ConfigurationError(f"{_flag(str(fault['loc'][0]))} {fault['input']}: {reason}.") from None


def _option(name: str, field: FieldInfo, panel: str, hint: str | None) -> inspect.Parameter:
    kinds = [kind for kind in get_args(field.annotation) or (field.annotation,) if kind is not type(None)]
    kind: Any = kinds[0] if len(kinds) == 1 else str  # a union is parsed by the model
    text = " ".join(filter(None, (field.description, hint)))
    option = typer.Option(_flag(name), help=text, rich_help_panel=panel)
    # Literals as text: our own message suggests the closest one.
    kind = kind if isinstance(kind, type) else str
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def with_prompts(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each field of `PromptOptions` to a command, which receives them as `prompts`."""
    return with_option_group(command, "prompts", PromptOptions, panel="Prompt", check=partial(choose, PromptOptions))


_LISTS = ("motion_tasks", "still_tasks")

NumFrames = Annotated[int | None, typer.Option(min=1, max=512, help="Frames per video.", rich_help_panel="Sampling")]


def with_sampling(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each field of `SamplingOptions` to a command, which receives them as `sampling`."""
    hints = {"sampler": _sampler_hint()} | dict.fromkeys(_LISTS, "Comma-separated.")
    return with_option_group(command, "sampling", SamplingOptions, panel="Sampling", check=choose_sampling, hints=hints)


def _sampler_hint() -> str:
    try:
        return describe_samplers()
    except ConfigurationError as error:  # of another package: fails what needs the samplers, not every command
        return error.message


def choose_sampling(values: dict[str, Any]) -> SamplingOptions:
    """Validate the values given on the command line.

    Raises:
        ConfigurationError: The sampler is unknown, or a number out of bounds.
    """
    sampler = values.get("sampler")
    try:
        if sampler is not None:
            find_sampler(sampler)
    except ValueError as error:
        message = str(error)
        raise ConfigurationError(message if message.endswith("?") else f"{message}.") from None
    lists = {name: _names(given) for name in _LISTS if isinstance(given := values.get(name), str)}
    return choose(SamplingOptions, values | lists)


def _names(text: str) -> list[str]:
    return [name for each in text.split(",") if (name := each.strip())]


def with_selection(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each field of `Selection` to a command, which receives them as `selection`."""
    return with_option_group(command, "selection", Selection, panel="Job selection", check=partial(choose, Selection))
