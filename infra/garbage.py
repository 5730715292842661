"""Garbage collection for processes that import much: what they import stays, and is traversed for nothing."""

from __future__ import annotations

import atexit
import gc

# Python's own first threshold is 700.
_ALLOCATIONS = 10_000


def collect_rarely() -> None:
    """Collect garbage more rarely than Python does, and not once more when the process ends."""
    gc.set_threshold(_ALLOCATIONS, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)
