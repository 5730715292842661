"""Linear decodes of damaged files, in processes that such a file may crash."""

from __future__ import annotations

import multiprocessing
import resource
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from queue import SimpleQueue
from typing import TYPE_CHECKING, Self

import av.error

from benchmarks.exactness.linear import LinearDecode, decode_linearly
from reelabel.errors import DecoderCrashedError

if TYPE_CHECKING:
    from pathlib import Path


class ReferenceProcesses:
    """Processes that decode linearly; one that dies or takes too long is replaced. Thread-safe."""

    def __init__(self, processes: int, *, timeout_s: int, memory_mib: int) -> None:
        self._timeout_s, self._memory_mib = timeout_s, memory_mib
        self._idle: SimpleQueue[ProcessPoolExecutor] = SimpleQueue()
        for _ in range(processes):
            self._idle.put(self._make())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while not self._idle.empty():
            self._idle.get().shutdown()

    def decode_linearly(self, path: Path, *, in_fresh_memory: bool = False) -> LinearDecode:
        """Decode a file; nothing, if it cannot be opened."""
        process = self._idle.get()
        try:
            return process.submit(_decode_or_nothing, path, self._timeout_s, in_fresh_memory=in_fresh_memory).result()
        except (BrokenProcessPool, MemoryError) as error:
            process.shutdown()
            process = self._make()
            raise DecoderCrashedError(f"The linear decode crashed ({type(error).__name__}).") from None
        finally:
            self._idle.put(process)

    def _make(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(1, mp_context=context, initializer=_limit_memory, initargs=(self._memory_mib,))


def _limit_memory(memory_mib: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (memory_mib * 1024**2, hard))


def _decode_or_nothing(path: Path, timeout_s: int, *, in_fresh_memory: bool) -> LinearDecode:
    signal.alarm(timeout_s)  # ends the process
    try:
        return decode_linearly(path, in_fresh_memory=in_fresh_memory)
    except MemoryError:
        raise
    except (av.error.FFmpegError, OSError, ValueError):
        return LinearDecode((), 0.0)
    finally:
        signal.alarm(0)
