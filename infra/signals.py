"""Ctrl-C, SIGTERM, a closed terminal: each unwinds the main thread, and a deadline ends the process in any case."""

from __future__ import annotations

import os
import signal
import socket
import stat
import threading
from contextlib import suppress

EXIT_CODE = 128 + signal.SIGINT
GRACE_S = 8.0
# A flow has GRACE_S seconds once it has unwound; this is the limit for one that does not unwind.
_TERMINATION_S = 20.0
_WAKE_S = 0.1
_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Deadline:
    """When this process is ended by force, and the message printed then; empty if the process has printed it."""

    def __init__(self) -> None:
        self.message = ""
        self.grace_s: dict[int, float] = {}
        self.has_raised = False
        self._forcing = threading.Lock()

    def start(self, grace_s: float, exit_code: int) -> None:
        timer = threading.Timer(grace_s, self.end, [exit_code])
        timer.daemon = True
        timer.start()

    def end(self, exit_code: int) -> None:
        """End this process and its children without waiting for anything in it."""
        if not self._forcing.acquire(blocking=False):
            return
        from infra.processes import kill_children  # noqa: PLC0415 - a command handles signals before it imports

        if self.message:
            # Not through `sys.stderr`, whose lock the main thread may hold.
            os.write(2, f"\n{self.message}\n".encode())
        with suppress(Exception):  # whatever is left, this process ends
            kill_children()
        os._exit(exit_code)

    def watch(self, reader: socket.socket, _kept_open: socket.socket) -> None:
        counts = dict.fromkeys(_NUMBERS, 0)
        while True:
            try:
                number = signal.Signals(reader.recv(1)[0])
            except TimeoutError:
                # Polars restarts system calls that SIGINT interrupts, so that the main thread would wait on. One signal
                # may come while the call is being restarted, so it is sent until the main thread has raised.
                if not self.has_raised:
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGURG)
                continue
            if number not in counts:
                continue
            reader.settimeout(_WAKE_S)
            counts[number] += 1
            if sum(counts.values()) == 1:
                self.start(self.grace_s[number], 128 + number)
            if counts[signal.SIGINT] > 1:
                self.end(EXIT_CODE)


_deadline = _Deadline()


def install(message: str = "", *, grace_s: float = GRACE_S, termination_s: float = _TERMINATION_S) -> None:
    """Have the first signal raise KeyboardInterrupt or SystemExit in the main thread, which calls this, and no other.

    After `grace_s` (SIGINT) or `termination_s`, or at a second Ctrl-C, the process prints `message` and is ended by
    force. Signals that a shell or `nohup` has this process ignore stay ignored. The interpreter's own handler, written
    in C, reports every signal to a thread: this works even if the main thread is stuck in a library.
    """
    _deadline.message = message
    _deadline.grace_s = {signal.SIGINT: grace_s, signal.SIGTERM: termination_s, signal.SIGHUP: termination_s}
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    for number in _NUMBERS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _hang_up if number == signal.SIGHUP else _raise_once)
    signal.signal(signal.SIGURG, lambda *_: None)  # see `_Deadline.watch`
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_deadline.watch, args=(reader, writer), name="signals", daemon=True).start()


def allow(grace_s: float) -> None:
    """Give this process more seconds to end after SIGTERM."""
    _deadline.grace_s[signal.SIGTERM] = grace_s


def silence() -> None:
    """Print nothing at a forced end: the process has printed how to go on."""
    _deadline.message = ""


def end_within(grace_s: float, exit_code: int) -> None:
    """End this process by force if it has not ended some seconds from now, also if other threads keep it waiting."""
    _deadline.start(grace_s, exit_code)


def _raise_once(number: int, _frame: object) -> None:
    _deadline.has_raised = True
    for each in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(each) is _raise_once:
            signal.signal(each, lambda *_: None)  # unlike SIG_IGN, not inherited by new processes
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _hang_up(_number: int, _frame: object) -> None:
    """End as by SIGTERM; output is discarded, because writing to a closed terminal fails."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        with suppress(OSError):  # it may be closed
            if stat.S_ISCHR(os.fstat(descriptor).st_mode):
                os.dup2(nowhere, descriptor)
    os.close(nowhere)
    os.kill(os.getpid(), signal.SIGTERM)
