"""The example at the end of every command's help."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def example(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """End a command's help with an example."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        function.__doc__ = f"{function.__doc__}\n\n[dim]Example:[/dim] {text}"
        return function

    return add
