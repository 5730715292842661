"""The command line that does what a flow run or a dry run describes."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def command(name: str, *arguments: str, **options: Any) -> str:  # noqa: ANN401 - values of options
    """Return a command line of `reelabel`, quoted for a shell.

    Args:
        name: The command.
        arguments: Its arguments.
        options: Values by option; None, False and empty ones are left out. The fields of a model, or of a mapping as
            flow runs have them, are options of their own.
    """
    return shlex.join(["reelabel", *name.split(), *arguments, *_words(options)])


def _words(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if isinstance(value, BaseModel):
            yield from _words(value.model_dump(mode="json", exclude_defaults=True))
        elif isinstance(value, dict):
            yield from _words(value)
        elif value not in (None, False, "", []):
            yield f"--{name.replace('_', '-')}"
            if value is not True:
                yield ",".join(map(str, value)) if isinstance(value, list) else str(value)


def repeat_flow(flow: str, parameters: Mapping[str, Any]) -> str | None:
    """Return the command that starts a flow again; None if the command line cannot."""
    given = {name: parameters.get(name) for name in ("dataset", "overrides", "force")}
    if flow == "classify":
        return command("classify", parameters["manifest"], **given)
    if flow == "describe":
        asked = {name: parameters.get(name) for name in ("dataset", "options", "force")}
        return command("describe", parameters["manifest"], **asked)
    if flow == "backfill" and not parameters.get("ids_file"):
        chosen = {
            "ids": parameters.get("job_ids"),
            "selection": parameters.get("jobs"),
            "manifest": parameters["manifest"],
        }
        return command("backfill", **chosen, **given)
    return "reelabel maintain" if flow == "maintain" else None
