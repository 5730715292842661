"""How long a call takes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def time_ms(call: Callable[[], object]) -> float:
    """Return the milliseconds that a call takes."""
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1e3
