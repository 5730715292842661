"""Counts the frames that scripts decode, with a library preloaded into all of their processes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".c")
_COUNT_BYTES = 8


class DecodedFrames:
    """A counter, below a folder; without a C compiler, nothing is counted."""

    def __init__(self, folder: Path) -> None:
        self._counter, library = folder / "decoded", folder / "decoded.so"
        compiler = shutil.which("cc")
        self._library = library if compiler else None
        if compiler:
            wanted = [
                "-O2",
                "-shared",
                "-fPIC",
                f'-DCOUNTER="{self._counter}"',
                str(_SOURCE),
                "-o",
                str(library),
                "-ldl",
            ]
            subprocess.run([compiler, *wanted], check=True)  # noqa: S603 - our own source

    def restart(self) -> dict[str, str]:
        """Begin at zero; return the variables of the processes that are counted."""
        if not self._library:
            return {}
        self._counter.write_bytes(bytes(_COUNT_BYTES))
        return {"LD_PRELOAD": str(self._library)}

    @property
    def frames(self) -> int | None:
        """Frames since the last start; None if they are not counted."""
        return int.from_bytes(self._counter.read_bytes(), "little") if self._library else None
