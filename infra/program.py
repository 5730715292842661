"""How this program is started again, by someone who reads a message of it."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

_NAME = "reelabel"
APPLICATION = "reelabel-app"
_CLI = ("flows", "cli")


def as_started(message: str) -> str:
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
