"""Work that somebody waits for, such as the client of a service: it ends soon after nobody does any more."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# For so long at most, nobody who waits within the work looks.
LOOK_S = 0.5
_is_over: ContextVar[Callable[[], bool]] = ContextVar("is_over", default=lambda: False)


class AbandonedError(BaseException):
    """Nobody waits for the work; like a cancellation, it is no fault of what was worked on."""


@contextmanager
def working_until(is_over: Callable[[], bool]) -> Iterator[None]:
    """Work in the body of the `with` statement, and in threads that run in copies of its context, until it is over."""
    before = _is_over.set(is_over)
    try:
        yield
    finally:
        _is_over.reset(before)


def raise_if_abandoned() -> None:
    """Raise AbandonedError if nobody waits any more."""
    if _is_over.get()():
        raise AbandonedError
