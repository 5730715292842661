"""Resources shared by all test workers: the first user creates them, the last one ends them."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest

Value = TypeVar("Value")


def common_folder(factory: pytest.TempPathFactory) -> Path:
    """Return a temporary folder shared by all workers of this test session."""
    folder = factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, creating it if necessary."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def made_once(path: Path, make: Callable[[], Value]) -> Value:
    """Return a value created once for all workers, and cached as JSON."""
    with locked(path.with_suffix(".lock")):
        if not path.exists():
            path.write_text(json.dumps(make()))
        value: Value = json.loads(path.read_text())
        return value


@contextmanager
def shared(path: Path, make: Callable[[], Value], end: Callable[[Value], None]) -> Iterator[Value]:
    """Yield a value created by its first user and ended by its last one.

    Args:
        path: File that records it, as JSON.
        make: Creates it.
        end: Ends it, possibly in another worker than the one that created it.
    """
    with path.with_suffix(".users").open("w") as users:
        with locked(path.with_suffix(".change")):
            fcntl.flock(users, fcntl.LOCK_SH)
            value = made_once(path, make)
        try:
            yield value
        finally:
            with locked(path.with_suffix(".change")), suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                end(value)
                path.unlink()
