"""What it costs to lock a decoding process, and to give each video one of its own: the same work, in pools in turn."""

from __future__ import annotations

import time
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from reelabel.pool.decode_pool import DecodePool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TIMEOUT_S = 300
_MEMORY_MIB = 4096
_IN_A_ROW = 10


class Pools(NamedTuple):
    """Pools of one process: a locked one, one that has only limits, and locked ones that are replaced at once."""

    locked: DecodePool
    unlocked: DecodePool
    replaced: DecodePool


@contextmanager
def one_process_pools() -> Iterator[Pools]:
    """Open the pools.

    Raises:
        SandboxUnavailableError: This kernel cannot lock a process.
    """
    with (
        DecodePool(timeout_s=_TIMEOUT_S, memory_mib=_MEMORY_MIB, threads=1, sandbox="require") as locked,
        DecodePool(timeout_s=_TIMEOUT_S, memory_mib=_MEMORY_MIB, threads=1, sandbox="off") as unlocked,
        DecodePool(
            timeout_s=_TIMEOUT_S, memory_mib=_MEMORY_MIB, threads=1, sandbox="require", videos_per_process=1
        ) as replaced,
    ):
        yield Pools(locked, unlocked, replaced)


def lock_ratio(pools: Pools, work: Callable[[DecodePool], object], *, rounds: int) -> float:
    """Return how many times as long `work` takes in the locked process as in the unlocked one."""
    locked_s, unlocked_s = _medians((pools.locked, pools.unlocked), work, rounds=rounds)
    return locked_s / unlocked_s


def replacement_ms(pools: Pools, work: Callable[[DecodePool], object], *, rounds: int) -> float:
    """Return how many milliseconds more a video takes in a process of its own, of several in a row."""

    def in_a_row(pool: DecodePool) -> None:
        for _ in range(_IN_A_ROW):
            work(pool)

    replaced_s, locked_s = _medians((pools.replaced, pools.locked), in_a_row, rounds=rounds)
    return (replaced_s - locked_s) / _IN_A_ROW * 1e3


def _medians(
    pools: tuple[DecodePool, DecodePool], work: Callable[[DecodePool], object], *, rounds: int
) -> tuple[float, float]:
    """Return the median seconds that `work` takes in each pool; the order changes every round."""
    times: tuple[list[float], list[float]] = ([], [])
    for pool in pools:
        work(pool)
    turns = list(zip(pools, times, strict=True))
    for round_number in range(rounds):
        for pool, seconds in turns if round_number % 2 else reversed(turns):
            started = time.perf_counter()
            work(pool)
            seconds.append(time.perf_counter() - started)
    return median(times[0]), median(times[1])
