"""A process between vLLM's and the decoding processes, which runs their pool.

Started as `python -m reelabel.integrations.vllm.decode_server`.

Processes spawned by vLLM's own would import its main module, and with it torch, which exceeds their memory limit. So
the pool runs in a process that does not import them.
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
    from reelabel.pool.decode_pool import DecodePool

_TIMEOUT_S = 60
_MEMORY_MIB = 4096


class DecodePoolProcess:
    """A decoding pool in a process of its own, which ends with this one.

    Attributes:
        pool: A proxy for the pool. Thread-safe.
        process: The process that runs it.
    """

    pool: DecodePool

    def __init__(self, processes: int) -> None:
        """Start the process and its pool.

        Args:
            processes: Number of decoding processes.
        """
        name, key = secrets.token_hex(8), secrets.token_hex(16)
        # Its stdin stays open as long as this process lives. In a session of its own, it receives no Ctrl-C.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "reelabel.integrations.vllm.decode_server"],
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
        """Whether the process is running."""
        return self.process.poll() is None


class _Manager(BaseManager):
    """Lets one process call another's pool, from any number of threads."""


_pools: list[DecodePool] = []
_Manager.register("pool", lambda: _pools[0], exposed=("extract", "extract_by_ranges"))


def main() -> None:
    """Serve the parent until it exits."""
    from reelabel.pool.decode_pool import DecodePool  # noqa: PLC0415 - not needed in vLLM's process

    name, key, processes = sys.stdin.readline().split()
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _pools.append(DecodePool(processes=int(processes), timeout_s=_TIMEOUT_S, memory_mib=_MEMORY_MIB, threads=1))
    server = _manager(name, key).get_server()
    print("ready", flush=True)  # noqa: T201 - to the parent
    server.serve_forever()


def _manager(name: str, key: str) -> BaseManager:
    # An abstract socket leaves no file behind; clients authenticate with the key.
    return _Manager(address=f"\0reelabel-{name}", authkey=key.encode())


def _exit_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)  # the decoding processes exit with their parent


if __name__ == "__main__":
    main()
