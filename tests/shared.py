"""What all test workers share: the first one that needs it makes it, the last one that used it ends it."""

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
    """Return the temporary folder that all workers of this test session see."""
    folder = factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, which is made where it is missing."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def made_once(path: Path, make: Callable[[], Value]) -> Value:
    """Return what the first caller of all workers made; it must be writable as JSON."""
    with locked(path.with_suffix(".lock")):
        if not path.exists():
            path.write_text(json.dumps(make()))
        value: Value = json.loads(path.read_text())
        return value


@contextmanager
def shared(path: Path, make: Callable[[], Value], end: Callable[[Value], None]) -> Iterator[Value]:
    """Yield what the first of the current users made; the last of them ends it.

    Args:
        path: Where it is noted, as JSON.
        make: Make it.
        end: End it; called in another process than `make` where another worker is the last.
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
