import threading
import time

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
