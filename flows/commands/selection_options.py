"""`--failed`, `--missing`, `--where` and their like: which jobs a backfill means."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flows.commands.grouped import choose, with_group
from tasks.results.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Callable


def with_selection(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of `Selection`, and hand it the whole as `selection`."""
    return with_group(command, "selection", Selection, panel="Which jobs", check=partial(choose, Selection))
