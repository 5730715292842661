"""Values that each process creates for itself, such as connections: a forked child creates its own."""

from __future__ import annotations

import os
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_P = ParamSpec("_P")
_T = TypeVar("_T")
_KEPT = 8


def once_per_process(make: Callable[_P, _T]) -> Callable[_P, _T]:
    """Cache the last few results of a function in each process; only one thread at a time calls it.

    A forked child starts with an empty cache, even if a thread of its parent was inside the function.
    """
    kept, lock = lru_cache(_KEPT)(make), Lock()

    def renew() -> None:
        nonlocal lock
        lock = Lock()
        kept.cache_clear()

    def get(*arguments: _P.args, **named: _P.kwargs) -> _T:
        with lock:
            return kept(*arguments, **named)  # type: ignore[arg-type] # of a function whose arguments can be hashed

    os.register_at_fork(after_in_child=renew)
    return get
