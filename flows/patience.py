"""Waiting for a service that is away, so that nobody has to start a run again for that."""

from __future__ import annotations

import time
from contextlib import contextmanager
from itertools import chain, repeat
from typing import TYPE_CHECKING

from prefect import get_run_logger

from flows.names import WAITING
from infra.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeVar

    Result = TypeVar("Result")

RETRY_DELAYS_S = (2.0, 10.0, 30.0)
# Longer than a managed Postgres takes to fail over, or a model's server to load again.
OUTAGE_S = 600.0


def patiently(call: Callable[[], Result]) -> Result:
    """Call what may be done twice, and do so again, later each time, while a service is away.

    Raises:
        TransientError: It has stayed away for ten minutes; waiting longer is of no use, as the error tells.
    """
    until_s = time.monotonic() + OUTAGE_S
    delays_s = chain(RETRY_DELAYS_S, repeat(RETRY_DELAYS_S[-1]))
    while True:
        try:
            return call()
        except TransientError as error:
            delay_s = next(delays_s)
            if time.monotonic() + delay_s > until_s:
                error.was_waited_for = True
                raise
            get_run_logger().warning("%s Trying again in %g s.", error.message, delay_s, extra={WAITING: True})
            time.sleep(delay_s)


@contextmanager
def outlasting(services: Mapping[type[TransientError], Callable[[], object]]) -> Iterator[None]:
    """Where the work inside fails for want of a service, wait until it is back; the error passes on all the same.

    What fails while the service answers others has a reason of its own, and is told at once.

    Args:
        services: By the error that tells of its absence, what asks a service whether it is there.

    Raises:
        TransientError: As the work raises it; or a service stays away, which the error tells.
    """
    try:
        yield
    except TransientError as error:
        if is_there := services.get(type(error)):
            patiently(is_there)
        raise
