"""Ctrl-C and SIGTERM: a process has a few seconds to end in order; a second Ctrl-C ends it at once."""

from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

EXIT_CODE = 128 + signal.SIGINT
GRACE_S = 8.0
_kill_what_is_ours: list[Callable[[], None]] = []


def at_forced_end(kill: Callable[[], None]) -> None:
    """Have a function called if this process is ended by force: it kills what would outlive the process."""
    _kill_what_is_ours.append(kill)


def end_within(grace_s: float, exit_code: int) -> None:
    """End this process by force if it has not ended some seconds from now, also if other threads keep it waiting."""
    forced = threading.Timer(grace_s, _end_by_force, [exit_code])
    forced.daemon = True
    forced.start()


def _end_by_force(exit_code: int) -> None:
    for kill in _kill_what_is_ours:
        with suppress(Exception):  # whatever is left, this process ends
            kill()
    os._exit(exit_code)


def _interrupt_once(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGINT, lambda *_: None)  # unlike SIG_IGN, not inherited by new processes
    raise KeyboardInterrupt


class InterruptWatch:
    """Ends this process at the second SIGINT, or some time after the first one.

    The interpreter's own handler, written in C, reports every signal to a thread. So this works even if the main thread
    is stuck in a library or waits for other threads. The first SIGINT also raises KeyboardInterrupt, as always; later
    ones do not, so that nothing interrupts the cleanup but the end itself.
    """

    def __init__(self, sentence: str, *, grace_s: float = GRACE_S) -> None:
        """Start watching; only the main thread may do so.

        Args:
            sentence: Printed if the process is ended before it has said so itself.
            grace_s: Seconds from the first SIGINT to the forced end.
        """
        self._sentence = sentence
        self._grace_s = grace_s
        self._ending = threading.Lock()
        self._signals, self._handler_end = socket.socketpair()
        self._handler_end.setblocking(False)
        if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # a shell may have it ignored
            signal.signal(signal.SIGINT, _interrupt_once)
        signal.set_wakeup_fd(self._handler_end.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="interrupts", daemon=True).start()

    def silence(self) -> None:
        """Print nothing at a forced end: the process has said how to go on."""
        self._sentence = ""

    def _watch(self) -> None:
        self._await_interrupt()
        forced = threading.Timer(self._grace_s, self._end)
        forced.daemon = True
        forced.start()
        self._await_interrupt()
        self._end()

    def _await_interrupt(self) -> None:
        while self._signals.recv(1)[0] != signal.SIGINT:
            pass

    def _end(self) -> None:
        """End this process without waiting for anything in it."""
        if not self._ending.acquire(blocking=False):
            return
        if self._sentence:
            # Not through `sys.stderr`, whose lock the main thread may hold.
            os.write(2, f"\n{self._sentence}\n".encode())
        _end_by_force(EXIT_CODE)
