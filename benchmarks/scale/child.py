"""One step in a process of its own, so that its memory is its own."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a step took.

    Attributes:
        found: What it returned.
        seconds: Without the start of its process.
        peak_bytes: Most physical memory that the process held.
    """

    found: Any
    seconds: float
    peak_bytes: int


def in_child(step: Callable[..., Any], *arguments: Any) -> Taken:  # noqa: ANN401 - whatever the step takes
    """Do one step in a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_take, step, arguments).result()


def _take(step: Callable[..., Any], arguments: tuple[Any, ...]) -> Taken:
    started = time.perf_counter()
    found = step(*arguments)
    return Taken(found=found, seconds=time.perf_counter() - started, peak_bytes=_peak_bytes())


def _peak_bytes() -> int:
    # Not getrusage: its peak outlives exec, and would be that of the process which started this one.
    lines = Path("/proc/self/status").read_text().splitlines()
    [peak] = [line for line in lines if line.startswith("VmHWM:")]
    return int(peak.split()[1]) * 1024
