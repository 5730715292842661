"""The engine's process, which notes when it collects garbage: `collecting_engine.py FILE CONNECTION_FD LIFELINE_FD`.

After each collection of some length it appends a line to FILE: when it began and ended, in seconds by the monotonic
clock. Its child processes do the same.
"""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reelabel_engine.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Mapping

_LEAST_S = 0.001


def note_collections(path: Path, *, least_s: float = _LEAST_S) -> None:
    """Append the collections of this process to a file, from now on."""
    began_s = 0.0

    def note(phase: str, _info: Mapping[str, Any]) -> None:
        nonlocal began_s
        now_s = time.monotonic()
        if phase == "start":
            began_s = now_s
        elif now_s - began_s >= least_s:
            with path.open("a") as file:
                file.write(f"{began_s} {now_s}\n")

    gc.callbacks.append(note)


if __name__ == "__main__":
    note_collections(Path(sys.argv.pop(1)))
    main()
