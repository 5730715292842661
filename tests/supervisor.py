"""The supervisor of embedded services, seen from outside."""

import os
import signal
import socket
import time
from contextlib import contextmanager
from pathlib import Path


def supervisor_pid(home):
    """The process id of a folder's supervisor."""
    named = f"infra.embedded.supervisor\0{home}\0".encode()
    (pid,) = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if named in content(path)]
    return pid


def processes_of(home):
    """Command lines of all processes that name `home` there or in their environment, or work in it."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            line = (folder / "cmdline").read_bytes()
            traces = line + (folder / "environ").read_bytes() + os.fsencode((folder / "cwd").readlink())
        except OSError:
            continue
        if str(home).encode() in traces:
            found.append(line)
    return found


@contextmanager
def halted_supervisor(home):
    """Halt the supervisor, so that it does not start what is killed meanwhile."""
    pid = supervisor_pid(home)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def taken_port(port):
    """Listen on another supervisor's address as soon as all of its processes are gone."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return socket.create_server(("127.0.0.1", port))
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def content(path):
    """What a file holds; nothing if it is gone."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
