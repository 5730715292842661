"""The process of a decode pool that has one."""

import time


def only_child(pool):
    """Return its id, once a thread of the pool has started it."""
    deadline_s = time.monotonic() + 20
    while len(pool.process_ids) != 1 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    [child] = pool.process_ids
    return child
