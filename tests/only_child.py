"""The process of a decode pool that has one, and how it is locked."""

from pathlib import Path

from tests.wait import until

LOCKS = {"CapEff": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2"}


def only_child(pool):
    """Return its id, once a thread of the pool has started it."""
    until(lambda: len(pool.process_ids) == 1)
    [child] = pool.process_ids
    return child


def locks_of(pid):
    """Return a process's effective capabilities, and its locks, as the kernel reports them; see `LOCKS`."""
    lines = (line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {name: value for name, value in lines if name in LOCKS}
