"""SIGTERM, as a process gets whose pod is rolled or whose spot instance goes: hand back everything, and end soon."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prefect.exceptions import TerminationSignal

from flows.shard.retry import cancel_waits_at_exit
from infra.interrupts import GRACE_S, end_within

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def ends_soon() -> Iterator[None]:
    """When the body ends, cancel its waits; if SIGTERM ended it, also end this process, whatever its tasks wait for.

    Enter it last, so that the other contexts of a flow have these seconds to give back what they hold. Prefect would
    wait for running tasks, such as for a download that stalls.
    """
    try:
        with cancel_waits_at_exit():
            yield
    except TerminationSignal:
        end_within(GRACE_S, 128 + signal.SIGTERM)
        raise
