"""Binding the engine to some cores, and everything that feeds it to the others."""

from __future__ import annotations

import contextlib
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.repeat import repeating

if TYPE_CHECKING:
    from collections.abc import Iterator

_REBIND_S = 2.0  # each check takes time of the host's core


@dataclass(frozen=True, slots=True, kw_only=True)
class Cores:
    """The engine's cores, which play the part of a GPU, and the host's; both are empty where nothing is bound.

    Attributes:
        engine: Core numbers of the engine.
        host: Core numbers of everything else.
    """

    engine: frozenset[int] = frozenset()
    host: frozenset[int] = frozenset()

    @classmethod
    def split(cls) -> Cores:
        """Assign the first available core to the engine and the others to the host.

        With a single core, bind nothing.
        """
        first, *others = sorted(os.sched_getaffinity(0))
        return cls(engine=frozenset({first}), host=frozenset(others)) if others else cls()

    @property
    def engine_variables(self) -> dict[str, str]:
        """Environment that binds the threads of vLLM's CPU backend."""
        return {"VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, sorted(self.engine)))} if self.engine else {}

    def __str__(self) -> str:
        """Describe the binding in one sentence."""
        if not self.engine:
            return "No process is bound to a core."
        named = [", ".join(map(str, sorted(cores))) for cores in (self.engine, self.host)]
        return f"The engine is bound to core {named[0]}, everything else to core {named[1]}."


def bind(pid: int, cores: frozenset[int]) -> None:
    """Bind all threads of a process, and whatever they start from now on; ignore threads that end meanwhile."""
    if not cores:
        return
    with contextlib.suppress(FileNotFoundError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)


@contextmanager
def engine_binding(pid: int, cores: Cores) -> Iterator[None]:
    """Keep an engine's process on its cores, and its child processes on the host's, while the body runs.

    vLLM binds its own threads while loading, and child processes start at any time, so the binding is repeated.
    """

    def rebind() -> None:
        bind(pid, cores.engine)
        for child in descendants(pid):
            bind(child, cores.host)

    if not cores.engine:
        yield
        return
    rebind()
    with repeating(rebind, every_s=_REBIND_S):
        yield


def descendants(pid: int) -> list[int]:
    """Return the ids of all child processes, and of theirs."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, (thread / "children").read_text().split())
    return [*found, *(below for child in found for below in descendants(child))]
