"""Something that is done again and again while something else is measured."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def repeating(action: Callable[[], object], *, every_s: float) -> Iterator[None]:
    """Call a function in a thread of its own, again and again while the body runs."""
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(every_s):
            action()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
