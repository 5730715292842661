"""The options `--template`, `--system-prompt` and `--examples`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flows.commands.grouped import choose, with_group
from infra.settings import PromptChoice

if TYPE_CHECKING:
    from collections.abc import Callable


def with_prompts(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each field of `PromptChoice` to a command, which receives them as `prompts`."""
    return with_group(command, "prompts", PromptChoice, panel="Prompt", check=partial(choose, PromptChoice))
