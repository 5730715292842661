"""Options that come as a group: a command takes one for each field of a model, and is handed the model."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

import typer
from pydantic import BaseModel, ValidationError

from infra.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic.fields import FieldInfo

Choice = TypeVar("Choice", bound=BaseModel)


def with_group(
    command: Callable[..., None],
    group: str,
    model: type[Choice],
    *,
    panel: str,
    check: Callable[[dict[str, Any]], Choice],
    hints: Mapping[str, str] | None = None,
) -> Callable[..., None]:
    """Replace a command's parameter by an option for each field of its model.

    Args:
        command: Has a parameter `group`.
        group: That parameter's name.
        model: Its type; every field is optional, and its description is the option's help.
        panel: Title of the options in the command's help.
        check: Makes the model of what was given.
        hints: By field, what its help says besides.
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
    """Check what was given on the command line.

    Raises:
        ConfigurationError: A value is out of bounds; its option is named.
    """
    try:
        return model(**values)
    except ValidationError as error:
        fault = error.errors()[0]
        reason = fault["msg"].removeprefix("Value error, ")
        raise ConfigurationError(f"{_flag(str(fault['loc'][0]))} {fault['input']}: {reason}.") from None


def _option(name: str, field: FieldInfo, panel: str, hint: str | None) -> inspect.Parameter:
    kinds = [kind for kind in get_args(field.annotation) or (field.annotation,) if kind is not type(None)]
    kind: Any = kinds[0] if len(kinds) == 1 else str  # what may be of several kinds is read by the model
    text = " ".join(filter(None, (field.description, hint)))
    option = typer.Option(_flag(name), help=text, rich_help_panel=panel)
    # Literals as text: our own sentence names the one that is nearest.
    kind = kind if isinstance(kind, type) else str
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
