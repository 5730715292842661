"""Whom an engine works for: it ends with its client, unless that leaves it to the next one for a while."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import tempfile
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from reelabel_engine.protocol import Kept, send

if TYPE_CHECKING:
    from reelabel_engine.protocol import Keep

SOCKET = "engine.sock"  # in the folder of the engine's temporary files
_LOOK_S = 5.0
_LEAST_FREE = 0.1  # of the machine's memory


class Client:
    """The other end of a connection; once it is closed, be it by `kill -9`, this process group is killed."""

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

    def next(self, keep: Keep, *, model: str) -> Client | None:
        """Let it go, and wait for the next one; None once the time is over, or memory is short."""
        folder, facts_path, ends_s = Path(tempfile.gettempdir()), Path(keep.facts_path), time.time() + keep.seconds
        facts = {"pid": os.getpid(), "temporary": str(folder), "model": model, "until": ends_s}
        address = folder / SOCKET
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            listener.listen()
            unready = facts_path.with_suffix(".new")
            unready.write_text(json.dumps(facts))
            unready.rename(facts_path)  # whoever finds it can connect
            self._is_leaving.set()
            send(self.connection, Kept(number=keep.number))
            found = None
            while not found and (left_s := ends_s - time.time()) > 0 and not _is_memory_short():
                listener.settimeout(min(left_s, _LOOK_S))
                with suppress(TimeoutError):
                    found = Client(Connection(listener.accept()[0].detach()))
        for path in (facts_path, address):
            path.unlink(missing_ok=True)
        return found


def end() -> None:
    """End all processes of an engine that nobody has taken, and remove its temporary files."""
    shutil.rmtree(tempfile.gettempdir(), ignore_errors=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _is_memory_short() -> bool:
    sizes = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free, total = (int(sizes[name].split()[0]) for name in ("MemAvailable", "MemTotal"))
    return free < _LEAST_FREE * total
