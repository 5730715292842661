"""How this program is started again, by someone who reads a message of it."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NAME = "reelabel"
APPLICATION = "reelabel-app"
_CLI = ("flows", "cli")


def with_program_name(message: str) -> str:
    """Return a message whose commands, such as `reelabel up`, name the program as this one was started."""
    return message.replace(f"`{_NAME} ", f"`{shlex.join(program())} ")


def program() -> list[str]:
    """Return the words that start this program again: by its name only where the shell finds it."""
    typed = Path(sys.argv[0])
    if typed.parent.parts[-2:] == _CLI:  # python -m flows.cli
        return [sys.executable, "-m", "flows.cli"]
    if typed.parent.name == "prefect":  # python -m prefect.engine, a flow run of a worker
        beside = Path(sys.executable).with_name(_NAME)
        typed = beside if beside.exists() else Path(_NAME)
    found = shutil.which(_NAME)
    is_found = typed.name != _NAME or (found is not None and Path(found).resolve() == typed.resolve())
    return [_NAME if is_found else str(typed)]


def command(name: str, *arguments: str, **options: Any) -> str:  # noqa: ANN401 - values of options
    """Return a command line of `reelabel` as this one was started, quoted for a shell.

    Args:
        name: The command.
        arguments: Its arguments.
        options: Values by option; None, False and empty ones are left out, and an option is repeated for each value
            of a tuple. The fields of a model, or of a mapping as flow runs have them, are options of their own.
    """
    return shlex.join([*program(), *name.split(), *arguments, *option_words(options)])


def option_words(options: Mapping[str, Any], *, negated: bool = False) -> Iterator[str]:
    """Write options as on a command line; see `command`. With `negated`, False is an option, too: `--no-NAME`."""
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        # A model of pydantic, which takes as long to import as all that `--help` needs.
        if hasattr(type(value), "model_fields"):
            yield from option_words(value.model_dump(mode="json", exclude_unset=True), negated=True)
        elif isinstance(value, dict):
            yield from option_words(value, negated=negated)
        elif isinstance(value, tuple):
            for each in value:
                yield from (option, str(each))
        elif value is False:
            yield from [f"--no-{option[2:]}"] * negated
        elif value is not None and value not in ("", []):  # 0 is a value
            yield option
            if value is not True:
                yield ",".join(map(str, value)) if isinstance(value, list) else str(value)
