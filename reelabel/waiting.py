"""Abandonment of work that nobody waits for any more, for example after the client of a service disconnected."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Threads that block within the work check at least this often whether it is abandoned.
LOOK_S = 0.5
_is_over: ContextVar[Callable[[], bool]] = ContextVar("is_over", default=lambda: False)


class AbandonedError(BaseException):
    """Nobody waits for the work any more; like a cancellation, it is not the fault of a video or a question."""


@contextmanager
def working_until(is_over: Callable[[], bool]) -> Iterator[None]:
    """Abandon the work of the body, and of threads that run in copies of its context, once `is_over` returns true."""
    before = _is_over.set(is_over)
    try:
        yield
    finally:
        _is_over.reset(before)


def look() -> Callable[[], bool]:
    """Return what tells whether this thread's work is abandoned, for threads that do it for several others."""
    return _is_over.get()


def raise_if_abandoned() -> None:
    """Raise AbandonedError if nobody waits for the work any more."""
    if _is_over.get()():
        raise AbandonedError
