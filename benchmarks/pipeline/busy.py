"""How busy processors are over time: the engine's and the host's."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from benchmarks.pipeline.cores import Cores

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_SAMPLE_S = 0.1
_IDLE = slice(3, 5)  # idle, and waiting for a disk


class Busy(Protocol):
    """Shares of an interval, 0 to 1."""

    def engine(self, began_s: float, ended_s: float) -> float | None:
        """Busy share of what the engine computes on; None where it is not known."""

    def host(self, began_s: float, ended_s: float) -> float | None:
        """Busy share of everything else."""


class Sampler:
    """Reads counters ten times a second; a context manager."""

    def __init__(self, read: Callable[[], tuple[float, ...]]) -> None:
        """Keep what is read: any numbers, the same count each time."""
        self._read = read
        self._samples: list[tuple[float, tuple[float, ...]]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""
        self._ended.set()
        self._thread.join()

    def within(self, began_s: float, ended_s: float) -> list[tuple[float, ...]]:
        """Give what was read in an interval of the system's clock."""
        return [values for at_s, values in self._samples if began_s <= at_s <= ended_s]

    def _follow(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            self._samples.append((time.time(), self._read()))


class CoresBusy(Sampler):
    """Busy shares of the engine's cores and of the host's, by the kernel's count; a context manager."""

    device = "cpu"

    def __init__(self, cores: Cores) -> None:
        """Keep which cores to read."""
        self.cores = cores
        super().__init__(lambda: (*_ticks(cores.engine), *_ticks(cores.host)))

    def engine(self, began_s: float, ended_s: float) -> float | None:
        """Give the busy share of the engine's cores."""
        return self._share(began_s, ended_s, 0) if self.cores.engine else None

    def host(self, began_s: float, ended_s: float) -> float | None:
        """Give the busy share of the host's cores."""
        return self._share(began_s, ended_s, 2) if self.cores.engine else None

    def _share(self, began_s: float, ended_s: float, place: int) -> float | None:
        samples = self.within(began_s, ended_s)
        if not samples or samples[-1][place + 1] == samples[0][place + 1]:
            return None
        busy, total = (samples[-1][place + each] - samples[0][place + each] for each in (0, 1))
        return busy / total


class GpuBusy(Sampler):
    """Busy share of a GPU by NVIDIA's management library, and of all cores; a context manager."""

    cores = Cores()  # nothing is bound: the engine has its processor

    def __init__(self, index: int = 0) -> None:
        """Open the library.

        Raises:
            ImportError: nvidia-ml-py is not installed; vLLM for GPUs brings it.
            RuntimeError: There is no GPU.
        """
        import pynvml  # noqa: PLC0415 - only beside a GPU

        try:
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            self.device = str(pynvml.nvmlDeviceGetName(handle))
        except pynvml.NVMLError as error:
            raise RuntimeError(str(error)) from None
        super().__init__(lambda: (pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100, *_ticks(None)))

    def engine(self, began_s: float, ended_s: float) -> float | None:
        """Give the mean of the share of time in which a kernel ran."""
        shares = [values[0] for values in self.within(began_s, ended_s)]
        return sum(shares) / len(shares) if shares else None

    def host(self, began_s: float, ended_s: float) -> float | None:
        """Give the busy share of all cores together."""
        samples = self.within(began_s, ended_s)
        if not samples or samples[-1][2] == samples[0][2]:
            return None
        return (samples[-1][1] - samples[0][1]) / (samples[-1][2] - samples[0][2])


def watch(cores: Cores) -> GpuBusy | CoresBusy:
    """Look at the GPU, where there is one, else at cores."""
    try:
        return GpuBusy()
    except (ImportError, RuntimeError):
        return CoresBusy(cores)


def _ticks(cores: frozenset[int] | None) -> tuple[float, float]:
    """Add up busy and all ticks of some cores, or of all."""
    names = {"cpu"} if cores is None else {f"cpu{core}" for core in cores}
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu")]
    counts = [[int(count) for count in line[1:9]] for line in lines if line[0] in names]
    total = sum(map(sum, counts))
    return total - sum(sum(count[_IDLE]) for count in counts), total
