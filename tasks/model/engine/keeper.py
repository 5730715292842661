"""Keep a loaded engine for the next run.

An engine ends as soon as nobody holds the other end of its lifeline. When a run closes an engine that it may keep, it
starts this module as a process that holds the engine's descriptors, and listens on a Unix socket in the home folder. A
run of the same model and arguments takes them over; a run of another model has the engine ended first. It also ends
after a while, when memory is short, and with the process that keeps it.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOOK_S = 5.0
_ANSWER_S = 10.0
_LEAST_FREE = 0.1  # of the machine's memory
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptEngine:
    """An engine that was taken over."""

    connection: int
    lifeline: int
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmEngines:
    """The engines that are kept below a home folder."""

    folder: Path
    keep_s: float = 0.0

    @classmethod
    def of(cls, home: Path, keep_s: float = 0.0) -> WarmEngines:
        return cls(folder=home / "engines", keep_s=keep_s)

    def take(self, key: str, place: str = "") -> KeptEngine | None:
        """Take over an engine that was kept under a key and for some GPUs; end those that were kept under another key.

        The key names the model and all else that engines are loaded with.
        """
        for path in self._sockets():
            if not path.name.startswith(f"{key}-"):
                _ask(path, b"end")
            elif path.name.startswith(f"{key}-{place}-") and (found := _ask(path, b"take")):
                connection, lifeline = found[1]
                return KeptEngine(connection=connection, lifeline=lifeline, facts=found[0])
        return None

    def keep(self, key: str, place: str, connection: int, lifeline: int, facts: dict[str, Any]) -> None:
        """Have another process keep an idle engine; the caller closes its own descriptors.

        `facts` are handed to who takes it over, as JSON values: `pid` is that of the engine, `temporary` the folder
        that is removed once it has ended.

        Raises:
            OSError: It cannot be kept here.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.folder / f"{key}-{place}-{secrets.token_hex(4)}.sock"
        unready = path.with_suffix(".new")
        with socket.socket(socket.AF_UNIX) as listener:
            with _short(unready) as address:
                listener.bind(address)
            listener.listen()
            unready.rename(path)  # whoever finds it can connect
            kept = (listener.fileno(), connection, lifeline)
            about = json.dumps(
                {"socket": str(path), "seconds": self.keep_s, "until": time.time() + self.keep_s, **facts}
            )
            subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-P", "-m", __name__, *map(str, kept), about],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=kept,
                start_new_session=True,
            ).returncode = 0  # nobody waits for it: it outlives this process

    def show(self) -> list[dict[str, Any]]:
        return [found[0] for path in self._sockets() if (found := _ask(path, b"show"))]

    def end(self) -> int:
        return sum(_ask(path, b"end") is not None for path in self._sockets())

    def _sockets(self) -> list[Path]:
        return sorted(self.folder.glob("*.sock"))


class AdoptedProcess:
    """A process that another one has started."""

    def __init__(self, pid: int) -> None:
        """Open it: the id may be that of another process later."""
        self.pid = pid
        self.returncode: int | None = None
        self._descriptor = os.pidfd_open(pid)

    def wait(self, timeout: float | None = None) -> int:
        ended = select.poll()
        ended.register(self._descriptor, select.POLLIN)
        if not ended.poll(None if timeout is None else timeout * 1e3):
            raise subprocess.TimeoutExpired("the engine", timeout or 0)
        return 0

    def kill(self) -> None:
        signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self._descriptor)


def _ask(path: Path, request: bytes) -> tuple[dict[str, Any], list[int]] | None:
    """Send a request to who keeps an engine; return the facts and the descriptors of the reply, None if it is gone."""
    with socket.socket(socket.AF_UNIX) as keeper:
        keeper.settimeout(_ANSWER_S)
        try:
            with _short(path) as address:
                keeper.connect(address)
            keeper.sendall(request)
            data, descriptors, _, _ = socket.recv_fds(keeper, _MOST_BYTES, 2)
            try:
                while part := keeper.recv(_MOST_BYTES):
                    data += part
                facts = json.loads(data)
                if len(descriptors) == (2 if request == b"take" else 0):
                    return facts, descriptors
            except (OSError, ValueError):
                pass
            for descriptor in descriptors:
                os.close(descriptor)
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)  # it was killed
        except OSError:  # it takes too long
            pass
    return None


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """Yield an address of a socket that fits into 108 bytes, however long the path is."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _is_memory_short() -> bool:
    sizes = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free, total = (int(sizes[name].split()[0]) for name in ("MemAvailable", "MemTotal"))
    return free < _LEAST_FREE * total


def main(listener: int, connection: int, lifeline: int, facts: dict[str, Any]) -> None:
    path, ends_s = Path(facts["socket"]), time.monotonic() + facts["seconds"]
    server = socket.socket(fileno=listener)
    is_taken = False
    while not is_taken and (left_s := ends_s - time.monotonic()) > 0 and not _is_memory_short():
        ready, _, _ = select.select([server.fileno(), connection], [], [], min(left_s, _LOOK_S))
        if connection in ready:  # it has died
            break
        if not ready:
            continue
        with suppress(OSError), server.accept()[0] as client:
            client.settimeout(_ANSWER_S)
            request = client.recv(16)
            is_taken = request == b"take"
            socket.send_fds(client, [json.dumps(facts).encode()], [connection, lifeline] if is_taken else [])
            if request == b"end":
                break
    path.unlink(missing_ok=True)
    if is_taken:
        return
    with suppress(OSError):
        engine = os.pidfd_open(facts["pid"])
        os.close(lifeline)
        select.select([engine], [], [], _ANSWER_S)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(facts["pid"], signal.SIGKILL)  # the processes that render stay if it was killed alone
    shutil.rmtree(facts["temporary"], ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))
