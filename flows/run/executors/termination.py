"""SIGTERM, as a process gets whose pod is rolled or whose spot instance goes: hand back everything, and end soon."""

from __future__ import annotations

import signal
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from prefect.exceptions import TerminationSignal

from flows.shard.retry import cancel_waits_at_exit
from infra.interrupts import GRACE_S, end_within, signals_noticed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reelabel.sources.object_store import ObjectStore


@contextmanager
def ends_soon(*stores: ObjectStore) -> Iterator[None]:
    """When the body ends, end its waits and the requests of stores, for which Prefect would wait as long as they stall.

    If SIGTERM ended the body, also end this process some seconds later, whatever else its tasks wait for. Enter it
    last, so that the other contexts of a flow have these seconds to give back what they hold.
    """
    with signals_noticed(), ExitStack() as stack:
        for store in stores:
            stack.callback(store.cancel)  # second: then nothing tries again
        stack.enter_context(cancel_waits_at_exit())
        try:
            yield
        except TerminationSignal:
            end_within(GRACE_S, 128 + signal.SIGTERM)
            raise
