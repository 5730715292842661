"""The options `--template`, `--system-prompt` and `--examples`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flows.commands.grouped import choose, with_option_group
from infra.settings import PromptOptions

if TYPE_CHECKING:
    from collections.abc import Callable


def with_prompts(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each field of `PromptOptions` to a command, which receives them as `prompts`."""
    return with_option_group(command, "prompts", PromptOptions, panel="Prompt", check=partial(choose, PromptOptions))
