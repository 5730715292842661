"""Waiting for what another thread or process does."""

import time


def until(condition, within_s=60, *, every_s=0.05, details=lambda: ""):
    """Return what a condition returns once that is true; fail if it takes longer, with what `details` returns."""
    end_s = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < end_s, f"not within {within_s} s {details()}"
        time.sleep(every_s)
    return found
