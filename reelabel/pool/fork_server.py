"""The process that decoding processes are forked from, as their pool sees it.

Importing what a decoding process needs takes longer than decoding many a video. So one process imports it, and sees no
video; those forked from it are ready at once, and share its memory. The kernel ends them with it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from io import FileIO
from threading import Lock

from reelabel.errors import NotStartedError

CHILD_MODULE = "reelabel.pool.child"
FORK, WAIT = b"F", b"W"
NUMBER = struct.Struct("!q")  # a process id, an exit code, or a negative error number
_BOOT = (
    "import sys; sys.path[:] = sys.argv[3:]; from reelabel.pool.fork_server_main import main; "
    "main(int(sys.argv[1]), sys.argv[2])"
)
# What an interpreter may need to start at all. Everything else could hold a secret.
_ENVIRONMENT = ("LD_LIBRARY_PATH", "PYTHONHOME")
# NumPy's linear algebra is not used, and would start threads and reserve memory for them.
_FIXED_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_ANSWER_S = 120.0  # imports on a busy machine
_MAX_STDERR = 2000
_FIRST_FREE = 3  # after the standard streams


class ForkServer:
    """The process that decoding processes are forked from. Thread-safe."""

    def __init__(self) -> None:
        """Start it, or raise OSError; the kernel ends it with the thread that does."""
        self._lock = Lock()
        self._unreaped: set[int] = set()
        self._is_ready = self._is_retired = False
        self._socket, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._errors = memory_file("stderr")
        self._socket.settimeout(_ANSWER_S)
        try:
            with child_end:
                self._process = _start(child_end.fileno(), stderr=self._errors.fileno())
        except OSError:
            self._socket.close()
            self._errors.close()
            raise

    def fork(self, connection: int, errors: int) -> ForkedProcess:
        """Fork a decoding process, given its end of the socket to its pool, and its standard error until it is ready.

        Raises NotStartedError if this process was lost, or retired by another thread, and OSError if the kernel refuses
        another process.
        """
        with self._lock:
            if self._is_retired:
                raise NotStartedError
            try:
                socket.send_fds(self._socket, [FORK], [connection, errors])
                (pid,) = NUMBER.unpack(self._socket.recv(NUMBER.size))
            except (OSError, struct.error):
                self._close()
                raise NotStartedError(last_line(self._errors.fileno())) from None
            self._is_ready = True
            if pid < 0:
                raise OSError(-pid, os.strerror(-pid))
            self._unreaped.add(pid)
        return ForkedProcess(self, pid)

    def is_running(self, pid: int) -> bool:
        """Return whether a process has not been waited for, so that its id is not another's."""
        return pid in self._unreaped and self._process.poll() is None

    def wait(self, pid: int) -> int:
        """Wait for a process that was killed or has ended; return its exit code, as `subprocess` does."""
        with self._lock:
            self._unreaped.discard(pid)
            try:
                self._socket.sendall(WAIT + NUMBER.pack(pid))
                code: int = NUMBER.unpack(self._socket.recv(NUMBER.size))[0]
            except (OSError, struct.error):
                self._close()
                code = -signal.SIGKILL
            except BaseException:  # Ctrl-C: its answer would be taken for that to the next request
                self._close()
                raise
            self._end_if_unused()
        return code

    def discard(self) -> None:
        """Refuse to fork, and end once the last process has ended."""
        with self._lock:
            self._is_retired = True
            self._end_if_unused()

    def interrupt(self) -> None:
        """Kill it if it is still starting; a thread that waits for it gets an error."""
        if not self._is_ready:
            self._process.kill()

    def _end_if_unused(self) -> None:
        if self._is_retired and not self._unreaped:
            self._close()
            self._errors.close()

    def _close(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()


class ForkedProcess:
    """A process forked by the server; like `subprocess.Popen`."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self._server = server
        self._lock = Lock()
        self._code: int | None = None

    def kill(self) -> None:
        """Kill it, unless it was waited for. Thread-safe."""
        if self._server.is_running(self.pid):
            with suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        with self._lock:
            if self._code is None:
                self._code = self._server.wait(self.pid)
        return self._code


def memory_file(name: str) -> FileIO:
    """Return an empty file in memory, which is closed with its last reference, as sockets are."""
    return FileIO(os.memfd_create(name, os.MFD_CLOEXEC), "r+")


def last_line(descriptor: int) -> str:
    """Return the last line of the standard error of a process that did not start."""
    size = os.fstat(descriptor).st_size
    text = os.pread(descriptor, _MAX_STDERR, max(0, size - _MAX_STDERR)).decode(errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    return "".join(each for each in (lines or [""])[-1] if each.isprintable())


def _start(connection: int, *, stderr: int) -> subprocess.Popen[bytes]:
    # If this process has closed its standard streams, one of their numbers, which the other process replaces.
    passed = fcntl.fcntl(connection, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
    try:
        return subprocess.Popen(  # noqa: S603 - this very interpreter
            [sys.executable, "-P", "-c", _BOOT, str(passed), CHILD_MODULE, *map(os.path.abspath, sys.path)],
            env=_FIXED_ENVIRONMENT | {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            pass_fds=[passed],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,  # so that it receives no Ctrl-C
        )
    finally:
        os.close(passed)
