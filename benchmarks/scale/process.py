"""One step in a fresh process, so that its peak memory can be measured."""

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
class StepResult:
    """Result and cost of a step.

    Attributes:
        value: Return value.
        seconds: Wall-clock seconds, without starting the process.
        peak_bytes: Peak physical memory of the process.
    """

    value: Any
    seconds: float
    peak_bytes: int


def run_in_process(step: Callable[..., Any], *arguments: Any) -> StepResult:  # noqa: ANN401 - arguments of the step
    """Run a step in a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_measure, step, arguments).result()


def _measure(step: Callable[..., Any], arguments: tuple[Any, ...]) -> StepResult:
    started = time.perf_counter()
    value = step(*arguments)
    return StepResult(value=value, seconds=time.perf_counter() - started, peak_bytes=_peak_bytes())


def _peak_bytes() -> int:
    # Not getrusage: its peak survives exec, and could be that of the parent process.
    lines = Path("/proc/self/status").read_text().splitlines()
    [peak] = [line for line in lines if line.startswith("VmHWM:")]
    return int(peak.split()[1]) * 1024
