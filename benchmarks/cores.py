"""Binds the engine to some cores and everything else to the others, and measures their utilization."""

from __future__ import annotations

import contextlib
import os
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from benchmarks.harness import repeating
from reelabel_engine.devices import visible_gpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_REBIND_S = 2.0  # each check costs time on the host's core
_SAMPLE_S = 0.1
_IDLE = slice(3, 5)  # idle and iowait
_TIMES = slice(11, 13)  # fields of /proc/PID/stat after the name: ticks in user mode and in the kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Cores:
    """The engine's cores, which stand in for a GPU, and the host's; both are empty if nothing is bound.

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
        if not self.engine:
            return "No process is bound to a core."
        named = [", ".join(map(str, sorted(cores))) for cores in (self.engine, self.host)]
        return f"The engine is bound to core {named[0]}, everything else to core {named[1]}."


def bind(pid: int, cores: frozenset[int]) -> None:
    """Bind all threads of a process, and those that they start; ignore threads that end meanwhile."""
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


def used_cpu_s(pids: Iterable[int]) -> float:
    """Return the processor seconds that processes have used so far, in user mode and in the kernel."""
    stats = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids)
    return sum(int(ticks) for stat in stats for ticks in stat[_TIMES]) / os.sysconf("SC_CLK_TCK")


class CounterSampler:
    """Context manager that reads counters ten times per second."""

    def __init__(self, read: Callable[[], tuple[float, ...]]) -> None:
        """Prepare to sample; `read` returns the same number of counters each time."""
        self._read = read
        self._samples: list[tuple[float, tuple[float, ...]]] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(repeating(self._sample, every_s=_SAMPLE_S))
        return self

    def __exit__(self, *_raised: object) -> None:
        self._stack.close()

    def within(self, began_s: float, ended_s: float) -> list[tuple[float, ...]]:
        """Return the samples of an interval of the system's clock."""
        return [values for at_s, values in self._samples if began_s <= at_s <= ended_s]

    def share(self, began_s: float, ended_s: float, place: int) -> float | None:
        """Return by how much one counter grew in an interval, as a share of the next; None if unknown."""
        samples = self.within(began_s, ended_s)
        if not samples or samples[-1][place + 1] == samples[0][place + 1]:
            return None
        busy, total = (samples[-1][place + each] - samples[0][place + each] for each in (0, 1))
        return busy / total

    def _sample(self) -> None:
        self._samples.append((time.time(), self._read()))


class CpuUtilization(CounterSampler):
    """Utilization of the engine's cores and of the host's, from /proc/stat."""

    device = "cpu"

    def __init__(self, cores: Cores) -> None:
        self.cores = cores
        super().__init__(lambda: (*_ticks(cores.engine), *_ticks(cores.host)))

    def engine(self, began_s: float, ended_s: float) -> float | None:
        return self.share(began_s, ended_s, 0) if self.cores.engine else None

    def host(self, began_s: float, ended_s: float) -> float | None:
        return self.share(began_s, ended_s, 2) if self.cores.engine else None


class GpuUtilization(CounterSampler):
    """Utilization of a GPU, from NVIDIA's management library, and of all cores."""

    cores = Cores()  # nothing is bound: the engine has its own processor

    def __init__(self) -> None:
        """Open the management library."""
        import pynvml  # noqa: PLC0415 - only with a GPU

        first, *_ = [*visible_gpus(), "0"]  # an engine uses the first GPU that CUDA sees
        try:
            pynvml.nvmlInit()
            by_index, by_uuid = pynvml.nvmlDeviceGetHandleByIndex, pynvml.nvmlDeviceGetHandleByUUID
            handle = by_index(int(first)) if first.isdecimal() else by_uuid(first)
            self.device = str(pynvml.nvmlDeviceGetName(handle))
        except pynvml.NVMLError as error:
            raise RuntimeError(str(error)) from None
        super().__init__(lambda: (pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100, *_ticks(None)))

    def engine(self, began_s: float, ended_s: float) -> float | None:
        """Return the mean share of time in which a kernel ran."""
        shares = [values[0] for values in self.within(began_s, ended_s)]
        return sum(shares) / len(shares) if shares else None

    def host(self, began_s: float, ended_s: float) -> float | None:
        return self.share(began_s, ended_s, 1)


def observe(cores: Cores) -> GpuUtilization | CpuUtilization:
    """Observe the GPU if there is one, otherwise these cores."""
    try:
        return GpuUtilization()
    except (ImportError, RuntimeError):
        return CpuUtilization(cores)


def _ticks(cores: frozenset[int] | None) -> tuple[float, float]:
    """Return busy and total ticks of some cores; None is all of them."""
    names = {"cpu"} if cores is None else {f"cpu{core}" for core in cores}
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu")]
    counts = [[int(count) for count in line[1:9]] for line in lines if line[0] in names]
    total = sum(map(sum, counts))
    return total - sum(sum(count[_IDLE]) for count in counts), total
