"""Loaded engines that are kept for the next run; each listens on a socket, and ends by itself (`reelabel_engine.keep`).

A run of the same model and arguments takes one over; a run of another model ends it.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from infra.processes import is_own_peer
from reelabel_engine.keep import socket_in
from reelabel_engine.protocol import EngineInfo, EngineLoaded, decode_reply

if TYPE_CHECKING:
    from collections.abc import Iterator

_ANSWER_S = 10.0


class KeptEngine(NamedTuple):
    """An engine that was taken over."""

    connection: Connection
    info: EngineInfo
    process: AdoptedProcess
    temporary: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmEngines:
    """The engines kept below a home folder."""

    folder: Path
    keep_s: float = 0.0

    @classmethod
    def of(cls, home: Path, keep_s: float = 0.0) -> WarmEngines:
        return cls(folder=home / "engines", keep_s=keep_s)

    def new_path(self, key: str, gpus: str) -> Path:
        """Return a path for the facts of an engine: `key` stands for its model and arguments, `gpus` for its GPUs."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return self.folder / f"{key}-{gpus}-{secrets.token_hex(4)}.json"

    def take(self, key: str, gpus: str) -> KeptEngine | None:
        """Take over an engine with a key and GPUs, if there is one; end those with other keys."""
        for path, facts in self._kept():
            if not path.name.startswith(f"{key}-"):
                _end(path, facts)
            elif path.name.startswith(f"{key}-{gpus}-") and (found := _connect(path, facts)):
                return found
        return None

    def show(self) -> list[dict[str, Any]]:
        now_s = time.time()
        return [facts for _, facts in self._kept() if facts["until"] > now_s and Path(f"/proc/{facts['pid']}").exists()]

    def end(self) -> int:
        return sum(_end(path, facts) for path, facts in self._kept())

    def _kept(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        for path in sorted(self.folder.glob("*.json")):
            with suppress(OSError, ValueError):
                yield path, json.loads(path.read_text())


class AdoptedProcess:
    """A process started by another one, with the part of `Popen` that is used."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._descriptor = os.pidfd_open(pid)  # as the id may be that of another process later

    def wait(self, timeout: float | None = None) -> int:
        ended = select.poll()
        ended.register(self._descriptor, select.POLLIN)
        if not ended.poll(None if timeout is None else timeout * 1e3):
            raise subprocess.TimeoutExpired("the engine", timeout or 0)
        return 0

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self._descriptor)


def _connect(path: Path, facts: dict[str, Any]) -> KeptEngine | None:
    """Take over an engine; None if it has ended, or another process has taken it."""
    temporary = Path(facts["temporary"])
    with suppress(OSError, EOFError, ValueError), socket.socket(socket.AF_UNIX) as engine:
        engine.settimeout(_ANSWER_S)
        with socket_in(temporary) as address:
            engine.connect(address)
        if not is_own_peer(engine):  # another user has made the folder, once that of a killed engine was removed
            raise ConnectionRefusedError
        engine.settimeout(None)
        connection = Connection(engine.detach())
        if connection.poll(_ANSWER_S) and isinstance(loaded := decode_reply(connection.recv_bytes()), EngineLoaded):
            return KeptEngine(connection, replace(loaded.info, start_ms=0.0), AdoptedProcess(facts["pid"]), temporary)
    path.unlink(missing_ok=True)
    return None


def _end(path: Path, facts: dict[str, Any]) -> bool:
    found = _connect(path, facts)
    if found:
        found.connection.close()
        with suppress(subprocess.TimeoutExpired):  # it will end by itself
            found.process.wait(_ANSWER_S)
        shutil.rmtree(found.temporary, ignore_errors=True)
    return found is not None
