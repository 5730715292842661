import threading
import time
from contextlib import ExitStack

import pytest

from tasks.model.server.backend import SharedClock


def test_shares_of_concurrent_requests_add_up_to_the_time_taken():
    clock = SharedClock()
    shares = []

    def request():
        with clock.share() as share:
            time.sleep(0.05)
        shares.append(share)

    started = time.perf_counter()
    threads = [threading.Thread(target=request) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall_ms = (time.perf_counter() - started) * 1e3

    assert sum(share.ms for share in shares) == pytest.approx(clock.busy_ms)
    assert 50 <= clock.busy_ms <= wall_ms


def test_a_moment_is_shared_equally_by_the_requests_in_flight(monkeypatch):
    now_s = iter([0, 1, 3, 4, 10, 12])
    monkeypatch.setattr(time, "perf_counter", lambda: next(now_s))
    clock = SharedClock()

    with ExitStack() as first:
        one = first.enter_context(clock.share())
        second = ExitStack()
        other = second.enter_context(clock.share())
    second.close()
    with clock.share() as later:  # after a pause, which is nobody's
        pass

    assert (one.ms, other.ms, later.ms) == (2_000, 2_000, 2_000)
    assert clock.busy_ms == 6_000
