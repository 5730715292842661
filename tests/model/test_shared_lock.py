"""A lock is held by many at once, or by one alone."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from tasks.model.shared_lock import SharedLock
from tests.wait import until


def hold(lock, mode, held, release):
    with getattr(lock, mode)():
        held.append(mode)
        release.wait(20)


@pytest.fixture
def threads():
    with ThreadPoolExecutor(4) as threads:
        yield threads


def test_many_share_it_at_once(threads):
    lock, barrier = SharedLock(), Barrier(3, timeout=20)

    def wait_together():
        with lock.shared():
            barrier.wait()

    for each in [threads.submit(wait_together) for _ in range(3)]:
        each.result(20)


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_nobody_else_has_it_while_one_has_it_alone(threads, mode):
    lock, held, release, second = SharedLock(), [], Event(), Event()
    first = threads.submit(hold, lock, "exclusive", held, release)
    until(lambda: held)
    other = threads.submit(hold, lock, mode, held, second)
    if mode == "exclusive":
        until(lambda: lock._exclusive == 2)

    assert held == ["exclusive"]
    second.set()
    release.set()
    first.result(20)
    other.result(20)
    assert held == ["exclusive", mode]


def test_who_waits_to_have_it_alone_goes_before_those_who_would_share_it(threads):
    lock, held, release, second = SharedLock(), [], Event(), Event()
    first = threads.submit(hold, lock, "shared", held, release)
    until(lambda: held)
    alone = threads.submit(hold, lock, "exclusive", held, second)
    until(lambda: lock._exclusive)
    late = threads.submit(hold, lock, "shared", held, second)

    release.set()
    first.result(20)
    until(lambda: len(held) == 2)
    assert held == ["shared", "exclusive"]
    second.set()
    for each in (alone, late):
        each.result(20)
    assert held == ["shared", "exclusive", "shared"]


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_it_is_released_by_an_error(mode):
    lock = SharedLock()
    with pytest.raises(ValueError, match="odd"), getattr(lock, mode)():
        raise ValueError("odd")

    with lock.exclusive():
        pass
