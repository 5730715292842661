"""The client of an engine: the engine ends with it, or waits for the next client for a while."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import threading
import time
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from reelabel_engine.protocol import Kept, send

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reelabel_engine.protocol import Keep

_SOCKET = "engine.sock"  # in the folder of the engine's temporary files
_CHECK_S = 5.0
_LEAST_FREE = 0.1  # of the machine's memory


@contextmanager
def socket_in(folder: Path) -> Iterator[str]:
    """Yield the address of an engine's socket, short enough for a socket however long the folder's path is."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{_SOCKET}"
    finally:
        os.close(descriptor)


class Client:
    """A client; once its connection is closed, even by `kill -9`, this process group is killed."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._is_leaving = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        end = select.poll()
        end.register(self.connection, 0)  # only for its end
        end.poll()
        if not self._is_leaving.is_set():
            os.killpg(os.getpgrp(), signal.SIGKILL)

    def wait_for_next(self, keep: Keep, *, model: str) -> Client | None:
        """Release this client, and wait for the next one; None if the time passes or memory runs short."""
        folder, facts_path, ends_s = _own_folder(), Path(keep.facts_path), time.monotonic() + keep.seconds
        facts = {"pid": os.getpid(), "temporary": str(folder), "model": model, "until": time.time() + keep.seconds}
        with socket.socket(socket.AF_UNIX) as listener:
            with socket_in(folder) as address:
                listener.bind(address)
            listener.listen()
            unready = facts_path.with_suffix(".new")
            unready.write_text(json.dumps(facts))
            unready.rename(facts_path)  # whoever finds it can connect
            self._is_leaving.set()
            send(self.connection, Kept(number=keep.number))
            found = None
            while not found and (left_s := ends_s - time.monotonic()) > 0 and not _is_memory_short():
                listener.settimeout(min(left_s, _CHECK_S))
                with suppress(TimeoutError):
                    found = Client(Connection(listener.accept()[0].detach()))
        for path in (facts_path, folder / _SOCKET):
            path.unlink(missing_ok=True)
        return found


def end() -> None:
    """End all processes of an engine that no client has taken over, and remove its temporary files."""
    shutil.rmtree(_own_folder(), ignore_errors=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _own_folder() -> Path:
    return Path(os.environ["TMPDIR"])  # not that of `tempfile`, which takes /tmp where this one cannot be used


def _is_memory_short() -> bool:
    sizes = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free, total = (int(sizes[name].split()[0]) for name in ("MemAvailable", "MemTotal"))
    return free < _LEAST_FREE * total
