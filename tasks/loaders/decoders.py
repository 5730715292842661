"""The pool of decoding processes, in a process between vLLM's and theirs: `python -m tasks.loaders.decoders`.

Processes started by vLLM's own would import its main module again, and torch with it, for which their limit
of memory has no room. So the pool stands in one that imports nothing of the kind.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
from multiprocessing.managers import BaseManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.video.pool import DecodePool

_TIMEOUT_S = 60
_MEMORY_MIB = 4096


class Decoders:
    """A pool beside this process, which ends with it.

    Attributes:
        pool: What behaves as the pool does; safe to call from many threads.
    """

    pool: DecodePool

    def __init__(self, processes: int) -> None:
        """Start it.

        Args:
            processes: Videos decoded at once.
        """
        name, key = secrets.token_hex(8), secrets.token_hex(16)
        # Its input stays open as long as this process lives. A Ctrl-C is for vLLM to answer, not for it.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tasks.loaders.decoders"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{name} {key} {processes}\n")
        self.process.stdin.flush()
        self.process.stdout.readline()
        manager = _manager(name, key)
        manager.connect()
        self.pool = manager.pool()  # type: ignore[attr-defined]

    @property
    def are_running(self) -> bool:
        """Whether they can be asked."""
        return self.process.poll() is None


class _Manager(BaseManager):
    """Lets one process call another's pool, from as many threads as it likes."""


_pools: list[DecodePool] = []
_Manager.register("pool", lambda: _pools[0], exposed=("extract", "extract_by_ranges"))


def main() -> None:
    """Serve the parent until its end."""
    from tasks.video.pool import DecodePool  # noqa: PLC0415 - vLLM's process needs none

    name, key, processes = sys.stdin.readline().split()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _pools.append(DecodePool(processes=int(processes), timeout_s=_TIMEOUT_S, memory_mib=_MEMORY_MIB))
    server = _manager(name, key).get_server()
    print("ready", flush=True)  # noqa: T201 - to the parent
    server.serve_forever()


def _manager(name: str, key: str) -> BaseManager:
    # An abstract socket leaves no file behind, and asks for the key.
    return _Manager(address=f"\0reelabel-{name}", authkey=key.encode())


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)  # the pool's children notice


if __name__ == "__main__":
    main()
