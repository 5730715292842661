"""Decoding in disposable processes: a video that crashes or hangs its decoder fails alone."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
import signal
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pebble import ProcessExpired, ProcessPool

from infra.errors import DecoderCrashedError, DecoderTimeoutError
from tasks.video.extract import extract_keyframes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from tasks.domain import Sampling
    from tasks.video.keyframes import Keyframes
    from tasks.video.limits import Limits

T = TypeVar("T")

_PR_SET_PDEATHSIG = 1


class DecodePool:
    """A pool of decoding processes; safe to call from many threads.

    A child that dies or exceeds its time is replaced, and the pool goes on.
    """

    def __init__(self, *, processes: int, timeout_s: float, memory_mib: int) -> None:
        """Make the pool; its processes start with the first video.

        Args:
            processes: Videos decoded at once.
            timeout_s: Seconds one video may take.
            memory_mib: Address space of one child, in MiB.
        """
        self._timeout_s = timeout_s
        self._pool = ProcessPool(
            max_workers=processes,
            context=multiprocessing.get_context("spawn"),
            initializer=_become_disposable,
            initargs=[os.getpid(), memory_mib],
        )

    def __enter__(self) -> Self:
        """Give the pool itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every child."""
        self.close()

    def extract(self, path: Path, *, sampling: Sampling, limits: Limits) -> Keyframes:
        """Run `extract_keyframes` in a child.

        Raises:
            VideoError: As `extract_keyframes` does; also DecoderCrashedError and DecoderTimeoutError.
        """
        return self._run(extract_keyframes, path, sampling=sampling, limits=limits)

    def close(self) -> None:
        """End every child, at work or not."""
        self._pool.stop()  # type: ignore[no-untyped-call]
        self._pool.join()

    def _run(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:  # noqa: ANN401
        future = self._pool.schedule(function, args=list(arguments), kwargs=named, timeout=self._timeout_s)
        try:
            result: T = future.result()
        except FutureTimeoutError:
            raise DecoderTimeoutError(
                f"Decoding took longer than {self._timeout_s:g} s; raise extract.timeout_s if the video is good.",
            ) from None
        except ProcessExpired as error:
            raise DecoderCrashedError(
                f"The decoding process died (exit code {error.exitcode}); the video is probably damaged.",
            ) from None
        except MemoryError:
            raise DecoderCrashedError(
                "Decoding needed more memory than extract.memory_mib; raise it if the video is good.",
            ) from None
        return result


def _become_disposable(parent_pid: int, memory_mib: int) -> None:
    """Prepare a child: limited memory, deaf to Ctrl-C, gone with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)
    limit_bytes = memory_mib * 1024**2
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
