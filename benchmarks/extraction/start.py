"""What a fresh process pays until it has its first frames, and a decoding process until it can begin."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_TIMED = """
import sys, time
began, cpu_began = time.perf_counter(), time.process_time()
{}
print(time.perf_counter() - began, time.process_time() - cpu_began)
"""
_PYAV = """
import av
with av.open(sys.argv[1]) as file:
    stream = file.streams.video[0]
    stream.codec_context.skip_frame = "NONKEY"
    frames = [frame.to_ndarray(format="rgb24") for frame in file.decode(stream)]
"""
_OURS = """
import reelabel
frames = reelabel.extract_frames(sys.argv[1], num_frames=16)
"""
_SCRIPTS = {
    "PyAV: import, and decode all keyframes": _PYAV,
    "ours: import, and extract 16 keyframes": _OURS,
    "PyAV and NumPy: import": "import av, numpy",
    "a decoding process: import": "import reelabel.pool.child",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRow:
    """Medians of a fresh process, without the start of Python itself.

    Attributes:
        work: What it does.
        wall_ms: Milliseconds that it takes.
        cpu_ms: Milliseconds of CPU time, which do not depend on what else is running.
    """

    work: str
    wall_ms: float
    cpu_ms: float


def measure_start(clip: Path, *, rounds: int) -> list[StartRow]:
    """Time fresh processes, in turns.

    Args:
        clip: A small clip.
        rounds: Repetitions of each; one more is not counted.
    """
    runs = [[_time_ms(script, clip) for script in _SCRIPTS.values()] for _ in range(rounds + 1)][1:]
    return [
        StartRow(work=work, wall_ms=median(wall for wall, _ in column), cpu_ms=median(cpu for _, cpu in column))
        for work, column in zip(_SCRIPTS, zip(*runs, strict=True), strict=True)
    ]


def _time_ms(script: str, clip: Path) -> tuple[float, float]:
    command = [sys.executable, "-c", _TIMED.format(script), str(clip)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own script
    wall_s, cpu_s = map(float, done.stdout.split())
    return wall_s * 1e3, cpu_s * 1e3
