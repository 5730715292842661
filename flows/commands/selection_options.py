"""The options that select the jobs of a backfill: `--failed`, `--missing`, `--where` and others."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flows.commands.grouped import choose, with_option_group
from tasks.results.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Callable


def with_selection(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each field of `Selection` to a command, which receives them as `selection`."""
    return with_option_group(command, "selection", Selection, panel="Job selection", check=partial(choose, Selection))
