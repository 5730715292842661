"""Number of cores that this process may use."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path("/")
_QUOTA_FILES = (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))  # of cgroups, version 2 and 1


def usable_cores(root: Path = _ROOT) -> int:
    """Return the number of cores by CPU affinity or by the container's CPU quota, rounded up, whichever is less.

    A container usually sees all cores of its node, and is paused whenever it has used up its quota of them. `proc` and
    `sys` are looked up below `root`.
    """
    quota = min(map(_quota, _cgroups(root)), default=math.inf)
    cores = len(os.sched_getaffinity(0))
    return max(1, math.ceil(min(cores, quota)))


def _cgroups(root: Path) -> Iterator[Path]:
    """Yield the folders of this process's CPU control groups and of their ancestors, whose quotas apply as well."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / controllers  # version 2 names no controllers
        # In a container, the path may be the host's; the container's group is then the mount itself.
        folder = mount / path.lstrip("/")
        yield from (folder, *(each for each in folder.parents if each.is_relative_to(mount)))


def _quota(cgroup: Path) -> float:
    for names in _QUOTA_FILES:
        with suppress(OSError, ValueError):  # no such file, or "max"
            quota_us, period_us = (int(part) for name in names for part in (cgroup / name).read_text().split())
            if quota_us > 0 and period_us > 0:
                return quota_us / period_us
    return math.inf
