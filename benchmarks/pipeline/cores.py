"""Which processor cores the engine may use, and which are left to everything that feeds it."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

_LOOK_S = 2.0  # each look takes time of the host's core


@dataclass(frozen=True, slots=True, kw_only=True)
class Cores:
    """The engine's cores beside its host's, as a GPU stands beside a CPU; both empty where nothing is bound.

    Attributes:
        engine: Numbers of cores.
        host: Numbers of the others.
    """

    engine: frozenset[int] = frozenset()
    host: frozenset[int] = frozenset()

    @classmethod
    def split(cls) -> Cores:
        """Give the engine the first core that this process may use, and the host the others.

        Nothing is bound where there is one core only.
        """
        first, *others = sorted(os.sched_getaffinity(0))
        return cls(engine=frozenset({first}), host=frozenset(others)) if others else cls()

    @property
    def engine_variables(self) -> dict[str, str]:
        """Tell vLLM's backend for CPUs where its threads belong."""
        return {"VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, sorted(self.engine)))} if self.engine else {}

    def __str__(self) -> str:
        """Say it in one sentence."""
        if not self.engine:
            return "No process is bound to a core."
        named = [", ".join(map(str, sorted(cores))) for cores in (self.engine, self.host)]
        return f"The engine is bound to core {named[0]}, everything else to core {named[1]}."


def bind(pid: int, cores: frozenset[int]) -> None:
    """Bind all threads of a process, and what they start from now on; those that end meanwhile are let go."""
    if not cores:
        return
    with contextlib.suppress(FileNotFoundError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)


class EngineBinding:
    """Keeps an engine's process on its cores, and what that starts on the host's; a context manager.

    vLLM binds its own threads when it loads, and processes appear at any time: it looks again and again.
    """

    def __init__(self, pid: int, cores: Cores) -> None:
        """Keep the process."""
        self._pid = pid
        self._cores = cores
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        """Bind from now on."""
        if self._cores.engine:
            self.look()
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Look no more."""
        self._ended.set()
        if self._thread.ident:
            self._thread.join()

    def look(self) -> None:
        """Bind what is there."""
        bind(self._pid, self._cores.engine)
        for pid in descendants(self._pid):
            bind(pid, self._cores.host)

    def _follow(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self.look()


def descendants(pid: int) -> list[int]:
    """List the processes that a process has started, and those that they have."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, (thread / "children").read_text().split())
    return [*found, *(below for child in found for below in descendants(child))]
