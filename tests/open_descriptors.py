"""What a process holds open, for tests that nothing is left open."""

from pathlib import Path


def open_descriptors(pid: int | str = "self") -> list[str]:
    """Return what each open descriptor of a process is.

    Compare the lengths with `<=`: a collection of garbage may close what an earlier test left.
    """
    return [str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()]
