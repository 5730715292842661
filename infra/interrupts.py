"""Ctrl-C, SIGTERM, a closed terminal: a process has a few seconds to end in order; a second Ctrl-C ends it at once."""

from __future__ import annotations

import os
import signal
import socket
import stat
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from sys import UnraisableHookArgs

EXIT_CODE = 128 + signal.SIGINT
GRACE_S = 8.0
# Wakes the main thread, and means nothing: without a handler, it is ignored.
_WAKE = signal.SIGURG
_WAKE_EVERY_S, _NOTICED_WITHIN_S = 0.1, 1.0
_kill_what_is_ours: list[Callable[[], None]] = []
# What ends generators and coroutines, and is no signal's; by name, as to import asyncio takes time.
_OF_COROUTINES = ("GeneratorExit", "CancelledError")
# What signals have raised, to no effect.
_dropped: list[BaseException] = []


def at_forced_end(kill: Callable[[], None]) -> None:
    """Have a function called if this process is ended by force: it kills what would outlive the process."""
    _kill_what_is_ours.append(kill)


def end_within(grace_s: float, exit_code: int) -> None:
    """End this process by force if it has not ended some seconds from now, also if other threads keep it waiting."""
    forced = threading.Timer(grace_s, _end_by_force, [exit_code])
    forced.daemon = True
    forced.start()


def end_at_hangup() -> None:
    """Have a closed terminal end this process as SIGTERM does, unless `nohup` has it go on.

    What is printed from then on goes nowhere: to write to a terminal that is gone fails.
    """
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        signal.signal(signal.SIGHUP, _hang_up)


def _hang_up(_number: int, _frame: object) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        with suppress(OSError):  # it may be closed
            if stat.S_ISCHR(os.fstat(descriptor).st_mode):
                os.dup2(nowhere, descriptor)
    os.close(nowhere)
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def signals_noticed() -> Iterator[None]:
    """Have the main thread notice soon what signals arrive while the body runs in it.

    Python calls their handlers only where the main thread takes its next step. A signal that arrives right before the
    thread begins to wait for a lock, or at another thread, does not wake it. So wake it now and then. Where a handler
    raises in a callback whose errors Python drops, as in that of a weak reference, it is raised again.
    """
    ended = threading.Event()
    hook_before = sys.unraisablehook

    def wake() -> None:
        while not ended.wait(_NOTICED_WITHIN_S):
            _wake_main_thread()

    if threading.current_thread() is threading.main_thread():
        signal.signal(_WAKE, _raise_dropped)
        sys.unraisablehook = _keep_dropped
        threading.Thread(target=wake, name="notices signals", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        sys.unraisablehook = hook_before


def _keep_dropped(unraisable: UnraisableHookArgs) -> None:
    """Keep what a signal has raised where Python drops it, and wake the main thread soon to raise it again."""
    error = unraisable.exc_value
    is_of_no_signal = isinstance(error, Exception) or type(error).__name__ in _OF_COROUTINES
    if error is None or is_of_no_signal or threading.current_thread() is not threading.main_thread():
        sys.__unraisablehook__(unraisable)
        return
    _dropped.append(error)
    again = threading.Timer(_WAKE_EVERY_S, _wake_main_thread)
    again.daemon = True
    again.start()


def _raise_dropped(_number: int, _frame: object) -> None:
    if _dropped:
        raise _dropped.pop()


def _wake_main_thread() -> None:
    main_id = threading.main_thread().ident
    assert main_id is not None
    signal.pthread_kill(main_id, _WAKE)


def _end_by_force(exit_code: int) -> None:
    for kill in _kill_what_is_ours:
        with suppress(Exception):  # whatever is left, this process ends
            kill()
    os._exit(exit_code)


class InterruptWatch:
    """Ends this process at the second SIGINT, or some time after the first one.

    The interpreter's own handler, written in C, reports every signal to a thread. So this works even if the main thread
    is stuck in a library or waits for other threads. The first SIGINT also raises KeyboardInterrupt, as always; later
    ones do not, so that nothing interrupts the cleanup but the end itself.

    The main thread is woken until it has raised, and raises again what Python drops (`signals_noticed` says why).
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
        self._has_raised = False
        self._signals, self._handler_end = socket.socketpair()
        self._handler_end.setblocking(False)
        if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # a shell may have it ignored
            signal.signal(signal.SIGINT, self._interrupt_once)
            signal.signal(_WAKE, _raise_dropped)
            sys.unraisablehook = _keep_dropped
        signal.set_wakeup_fd(self._handler_end.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="interrupts", daemon=True).start()

    def silence(self) -> None:
        """Print nothing at a forced end: the process has said how to go on."""
        self._sentence = ""

    def _interrupt_once(self, _number: int, _frame: object) -> None:
        self._has_raised = True
        signal.signal(signal.SIGINT, lambda *_: None)  # unlike SIG_IGN, not inherited by new processes
        raise KeyboardInterrupt

    def _watch(self) -> None:
        self._await_interrupt()
        forced = threading.Timer(self._grace_s, self._end)
        forced.daemon = True
        forced.start()
        threading.Thread(target=self._wake_main_thread, name="wakes the main thread", daemon=True).start()
        self._await_interrupt()
        self._end()

    def _wake_main_thread(self) -> None:
        while not self._has_raised:
            _wake_main_thread()
            time.sleep(_WAKE_EVERY_S)

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
