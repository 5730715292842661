"""`--template`, `--system-prompt` and `--examples`, the same for every command that asks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flows.commands.grouped import choose, with_group
from infra.settings import PromptChoice

if TYPE_CHECKING:
    from collections.abc import Callable


def with_prompts(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of `PromptChoice`, and hand it the whole as `prompts`."""
    return with_group(command, "prompts", PromptChoice, panel="Prompt", check=partial(choose, PromptChoice))
