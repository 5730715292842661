"""Another user of this machine, and what that user can open."""

import os
import pickle
import re
from pathlib import Path

NOBODY = 65534  # Postgres runs as this user if the tests run as root
STRANGER = 54321
LOOPBACK = "0100007F"  # 127.0.0.1, as `listening_ports` gives it
_LISTENS = "0A"


def as_user(uid, work):
    """Run `work` in a forked process of another user, and return its result.

    Nothing is imported there, because Python's files may not be readable. TCP does not tell users apart, so without
    root, who alone can become another user, the process stays what it is.
    """
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(receiving)
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
            os.write(sending, pickle.dumps(work()))
        finally:
            os._exit(0)
    os.close(sending)
    with os.fdopen(receiving, "rb") as pipe:
        result = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(result)


def process_tree(pid):
    """A process and all its descendants."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def listening_ports(pid):
    """TCP ports, with their address in hexadecimal, on which a process and its descendants listen."""
    inodes = _sockets_of(pid)
    lines = [line.split() for kind in ("tcp", "tcp6") for line in _table(kind)]
    addresses = {line[1] for line in lines if line[3] == _LISTENS and line[9] in inodes}
    return sorted((int(address.rpartition(":")[2], 16), address.rpartition(":")[0]) for address in addresses)


def unix_sockets(pid):
    """Paths of the sockets of a process and its descendants; those of abstract ones begin with @."""
    inodes = _sockets_of(pid)
    lines = [line.split(maxsplit=7) for line in _table("unix")]
    return sorted({line[7] for line in lines if len(line) == 8 and line[6] in inodes})


def _table(kind):
    return Path(f"/proc/net/{kind}").read_text().splitlines()[1:]


def _sockets_of(pid):
    found = set()
    for process in process_tree(pid):
        for file in Path(f"/proc/{process}/fd").iterdir():
            try:
                found.update(re.findall(r"socket:\[(\d+)\]", str(file.readlink())))
            except OSError:
                continue
    return found
