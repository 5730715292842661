"""Memory and descriptors of a machine over time."""

import threading
import time
from collections import defaultdict
from contextlib import suppress
from statistics import median
from typing import NamedTuple

import psutil

_EVERY_S = 15.0
_MIB = 1024**2
# By how much our own processes may grow. Programs of others have caches: Postgres touches its shared buffers.
_SHARE, _MORE_MIB, _MORE_DESCRIPTORS = 1.1, {"serve": 32, "worker": 16, "supervisor": 8}, 8


class Sample(NamedTuple):
    """One process, with its children, at one moment.

    Attributes:
        at_s: Seconds since the beginning.
        mib: Its proportional set size, in MiB.
        descriptors: Its open descriptors.
    """

    at_s: float
    mib: float
    descriptors: int


class Growth(NamedTuple):
    """How a process has grown.

    Attributes:
        name: What it is.
        early: Of the second quarter of the time: the median of MiB, and the least descriptors.
        late: Those of the last quarter.
        is_flat: Whether it stays within what is allowed.
    """

    name: str
    early: tuple[float, float]
    late: tuple[float, float]
    is_flat: bool


class Sampler(threading.Thread):
    """Samples the processes of a machine until it is ended.

    Attributes:
        samples: Samples by process.
    """

    def __init__(self, machine):
        super().__init__(name="sampler", daemon=True)
        self.samples = defaultdict(list)
        self._machine, self._ended, self._began_s = machine, threading.Event(), time.monotonic()

    def run(self):
        while not self._ended.wait(_EVERY_S):
            at_s = time.monotonic() - self._began_s
            for name, pids in self._machine.processes().items():
                self.samples[name].append(_sample(at_s, pids))

    def end(self):
        """End it."""
        self._ended.set()
        self.join()

    def growth(self):
        """Compare the last quarter of the time with the second one; in the first, caches fill."""
        return [_growth(name, samples) for name, samples in sorted(self.samples.items())]


def _sample(at_s, pids):
    used_bytes = descriptors = 0
    for pid in pids:
        with suppress(psutil.Error):  # it has ended meanwhile
            process = psutil.Process(pid)
            used_bytes += process.memory_full_info().pss
            descriptors += process.num_fds()
    return Sample(at_s, used_bytes / _MIB, descriptors)


def _growth(name, samples):
    quarter = max(1, len(samples) // 4)
    early, late = (
        (median(each.mib for each in part), min(each.descriptors for each in part))  # a flow run takes some
        for part in (samples[quarter : 2 * quarter] or samples, samples[-quarter:])
    )
    if name not in _MORE_MIB:
        return Growth(name, early, late, is_flat=True)
    is_flat = late[0] <= _SHARE * early[0] + _MORE_MIB[name] and late[1] <= _SHARE * early[1] + _MORE_DESCRIPTORS
    return Growth(name, early, late, is_flat)
