"""The decoding processes of a pool: started ahead, used by one thread at a time, and replaced."""

from __future__ import annotations

import logging
import os
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Condition
from typing import TYPE_CHECKING

from reelabel.errors import DecodersClosedError, DecodersLostError, NotStartedError
from reelabel.pool.fork_server import ForkServer
from reelabel.pool.process import DecodingProcess
from reelabel.waiting import LOOK_S, raise_if_abandoned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reelabel.pool.messages import Setup

_log = logging.getLogger(__name__)
MAX_LOST = 10
_CLOSE_S = 5.0


class DecodingProcesses:
    """A number of decoding processes. Thread-safe."""

    def __init__(self, setup: Setup, *, count: int, videos_per_process: int, ahead: bool) -> None:
        """Start them now if `ahead`; otherwise, start each when it is needed."""
        self._owner = os.getpid()
        self._setup = setup
        self._count = count
        self._videos_per_process = videos_per_process
        self._changed = Condition()
        self._is_closed = self._is_warned = False
        self._acquired = 0
        self._alive: set[DecodingProcess] = set()
        self._idle: list[Callable[[], DecodingProcess]] = []  # each waits for a process; ready ones are at the end
        self._server: ForkServer | None = None  # which the next process is forked from
        # One thread starts their server, as the kernel kills it, and them, when the thread that started it ends.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="decode-pool")
        with self._changed:
            for _ in range(count if ahead else 0):
                self._start_one()

    @property
    def ids(self) -> list[int]:
        with self._changed:
            return [process.pid for process in self._alive]

    def close(self) -> None:
        """Stop all processes, in use or not; in a process that was forked from their owner, do nothing."""
        if os.getpid() != self._owner:
            return
        with self._changed:
            self._is_closed = True
            for process in self._alive:
                process.kill()
            if self._server:
                self._server.interrupt()
            self._changed.notify_all()
        self._starter.shutdown(cancel_futures=True)
        with self._changed:
            self._changed.wait_for(lambda: not self._acquired, _CLOSE_S)  # each is ended by the thread that uses it
            left = list(self._alive)
        for process in left:
            self._discard(process)
        self._discard_server()

    @contextmanager
    def acquire(self) -> Iterator[DecodingProcess]:
        """Acquire a process that is ready, and replace it unless it is healthy afterwards."""
        if os.getpid() != self._owner:
            raise RuntimeError(
                f"The pool of decoding processes was made by process {self._owner}, from which this one was forked; "
                "make one here, or use PrepareVideo, which does."
            )
        with self._changed:
            while not self._changed.wait_for(lambda: self._is_closed or self._acquired < self._count, LOOK_S):
                raise_if_abandoned()
            self.check_open()
            self._acquired += 1
        try:
            process = self._take()
            is_last = process.videos + 1 >= self._videos_per_process
            if is_last:
                self._start_ahead()
            try:
                yield process
            finally:
                if process.is_healthy() and not is_last:
                    with self._changed:
                        self._idle.append(lambda: process)
                else:
                    self._discard(process)
                    if not is_last:
                        self._discard_server()  # a video that has learned the memory layout gets no second try
                        self._start_ahead()
        finally:
            with self._changed:
                self._acquired -= 1
                self._changed.notify_all()

    def check_open(self) -> None:
        if self._is_closed:
            raise _closed()

    def _take(self) -> DecodingProcess:
        lost = 0
        while True:
            process = self._next()
            was_ready = process.is_ready
            try:
                process.wait_ready()
            except NotStartedError as error:
                self._discard(process)
                self.check_open()
                lost += not was_ready
                if lost == MAX_LOST:
                    raise decoders_lost(str(error)) from None
            except BaseException:
                self._discard(process)
                raise
            else:
                self._warn(process)
                return process

    def _next(self) -> DecodingProcess:
        with self._changed:
            self.check_open()
            if not self._idle:
                self._start_one()
            get = self._idle.pop()
        try:
            return get()
        except CancelledError:
            raise _closed() from None

    def _discard(self, process: DecodingProcess) -> None:
        with self._changed:
            self._alive.discard(process)
        process.end()

    def _start_ahead(self) -> None:
        with self._changed:
            if not self._is_closed:
                self._start_one()

    def _start_one(self) -> None:
        self._idle.insert(0, self._starter.submit(self._start).result)

    def _start(self) -> DecodingProcess:
        reason = ""
        for _ in range(MAX_LOST):
            try:
                process = DecodingProcess(self._current_server(), self._setup)
            except NotStartedError as error:
                reason = str(error)
                self._discard_server()
                self.check_open()
            except OSError as error:
                raise decoders_lost(f"they cannot be started ({error.strerror})") from None
            else:
                with self._changed:
                    self._alive.add(process)
                    if self._is_closed:
                        process.kill()
                return process
        raise decoders_lost(reason)

    def _current_server(self) -> ForkServer:
        with self._changed:
            self.check_open()
            self._server = self._server or ForkServer()
            return self._server

    def _discard_server(self) -> None:
        with self._changed:
            server, self._server = self._server, None
        if server:
            server.discard()

    def _warn(self, process: DecodingProcess) -> None:
        if process.missing and not self._is_warned:
            self._is_warned = True
            _log.warning(
                "Sandbox incomplete: %s not available on this machine. A malicious video could do more damage.",
                " and ".join(process.missing),
            )


def _closed() -> DecodersClosedError:
    return DecodersClosedError("The pool of decoding processes is closed.")


def decoders_lost(reason: str = "") -> DecodersLostError:
    """Return the error for processes that are killed by something else than a video."""
    return DecodersLostError(
        "Decoding processes keep being killed; check whether the machine runs out of memory."
        + (f" (The last one: {reason}.)" if reason else "")
    )
