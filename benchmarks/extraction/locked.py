"""What it costs to lock a decoding process: the same work in a locked and in an unlocked one."""

from __future__ import annotations

import time
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING

from reelabel.pool.decode_pool import DecodePool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TIMEOUT_S = 300
_MEMORY_MIB = 4096


@contextmanager
def both_pools() -> Iterator[tuple[DecodePool, DecodePool]]:
    """Open a pool of one locked process, and one of one that has only limits.

    Raises:
        SandboxUnavailableError: This kernel cannot lock a process.
    """
    with (
        DecodePool(timeout_s=_TIMEOUT_S, memory_mib=_MEMORY_MIB, threads=1, sandbox="require") as locked,
        DecodePool(timeout_s=_TIMEOUT_S, memory_mib=_MEMORY_MIB, threads=1, sandbox="off") as unlocked,
    ):
        yield locked, unlocked


def lock_ratio(pools: tuple[DecodePool, DecodePool], work: Callable[[DecodePool], object], *, rounds: int) -> float:
    """Return how many times as long `work` takes in the locked process (medians; the order changes every round)."""
    times: dict[DecodePool, list[float]] = {pool: [] for pool in pools}
    for pool in pools:
        work(pool)
    for round_number in range(rounds):
        for pool in pools if round_number % 2 else reversed(pools):
            started = time.perf_counter()
            work(pool)
            times[pool].append(time.perf_counter() - started)
    locked, unlocked = pools
    return median(times[locked]) / median(times[unlocked])
