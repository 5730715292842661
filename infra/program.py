"""Command lines of this program, as it was started, for its messages."""

from __future__ import annotations

import csv
import io
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_NAME = "reelabel"
APPLICATION = "reelabel-app"
_CLI = ("flows", "cli")
SETTINGS: Final[list[str]] = []  # the values of --set in this command


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

    Options that are None, False or empty are left out, and repeated for each value of a tuple. The fields of a model,
    or of a mapping as flow runs have them, are options of their own; one of a model that is set to False or an empty
    text is written, too.
    """
    return shlex.join([*program(), *name.split(), *arguments, *option_words(options)])


def command_with_settings(name: str, *arguments: str, **options: Any) -> str:  # noqa: ANN401 - as of `command`
    """Return this command line with other options, and with the same settings: what a dry run has forecast."""
    return command(name, *arguments, **options, set=tuple(SETTINGS))


def join_list(values: Iterable[object]) -> str:
    """Write the values of an option that takes several: separated by commas, and quoted as in CSV where necessary."""
    written = io.StringIO()
    csv.writer(written).writerow(values)
    return written.getvalue().removesuffix("\r\n")


def split_list(text: str) -> list[str]:
    """Return the values that `join_list` has written, or a user."""
    rows = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    return [value for row in rows for cell in row if (value := cell.strip())]


def option_words(options: Mapping[str, Any]) -> Iterator[str]:
    """Write options as on a command line; see `command`."""
    for name, value in options.items():
        option = _flag(name)
        # A model of pydantic, which takes as long to import as all that `--help` needs.
        if hasattr(type(value), "model_fields"):
            yield from _model_words(value)
        elif isinstance(value, dict):
            yield from option_words(value)
        elif isinstance(value, tuple):
            for each in value:
                yield from (option, str(each))
        elif value is not None and value is not False and (value or not isinstance(value, str | list)):  # 0 is a value
            yield option
            if value is not True:
                yield join_list(value) if isinstance(value, list) else str(value)


def _model_words(model: Any) -> Iterator[str]:  # noqa: ANN401 - a model of pydantic, see `option_words`
    """Write the fields that are set; as on the command line, a field that is False by default has no `--no-NAME`."""
    for name, value in model.model_dump(mode="json", exclude_unset=True).items():
        field = getattr(model, name)
        if value is False and type(model).model_fields[name].default is not False:
            yield f"--no-{_flag(name)[2:]}"
        elif value == "":
            yield from (_flag(name), "")
        else:
            yield from option_words({name: field if isinstance(value, dict) else value})


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
