"""What the log lines of the current work are about: its run, plan, shard and stage."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import ParamSpec, TypeVar

    Parameters = ParamSpec("Parameters")
    Result = TypeVar("Result")

# Attribute of log records about what a run waits for, which its terminal shows.
IS_OUTAGE = "is_outage"

_NOTHING: Mapping[str, object] = {}
_known: ContextVar[Mapping[str, object]] = ContextVar("known", default=_NOTHING)
# Also for threads that start without a context, such as those of libraries.
_known_to_all: dict[str, object] = {}


def log_fields() -> dict[str, object]:
    """Return what is known where a line is logged, by the name of its field."""
    return {**_known_to_all, **_known.get()}


@contextmanager
def logged(**fields: object) -> Iterator[None]:
    """Add fields to the log lines of the body, and of threads that run in copies of its context; None adds none."""
    token = _known.set({**_known.get(), **_given(fields)})
    try:
        yield
    finally:
        _known.reset(token)


@contextmanager
def logged_by_all(**fields: object) -> Iterator[None]:
    """Add fields to all log lines of this process while the body runs; None adds none."""
    before = dict(_known_to_all)
    _known_to_all.update(_given(fields))
    try:
        yield
    finally:
        _known_to_all.clear()
        _known_to_all.update(before)


def in_context(call: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return a function to call in other threads, which then log as part of the same run and task as this one."""
    context = copy_context()

    def call_in_copy(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        return context.copy().run(call, *arguments, **options)

    return call_in_copy


def _given(fields: Mapping[str, object]) -> dict[str, object]:
    given = {name: value for name, value in fields.items() if value is not None}
    return {name: value if isinstance(value, int) else str(value) for name, value in given.items()}
