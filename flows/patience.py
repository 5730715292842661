"""Waiting for a service that is away, so that nobody has to start a run again for that."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from contextvars import ContextVar
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
# For a Postgres that fails over, or a model's server that loads again.
OUTAGE_S = 600.0
# Tasks see that of the flow which has submitted them.
_ENDING: ContextVar[threading.Event] = ContextVar("ending")


def patiently(call: Callable[[], Result]) -> Result:
    """Call what may be done twice, and do so again, later each time, while a service is away.

    Raises:
        TransientError: It has stayed away for ten minutes, or the flow ends; waiting longer is of no use, as the
            error tells.
    """
    until_s = time.monotonic() + OUTAGE_S
    delays_s = chain(RETRY_DELAYS_S, repeat(RETRY_DELAYS_S[-1]))
    while True:
        try:
            return call()
        except TransientError as error:
            if error.was_waited_for:
                raise
            delay_s = next(delays_s)
            error.was_waited_for = time.monotonic() + delay_s > until_s
            if error.was_waited_for or not _wait(error, delay_s):
                raise


def persistently(call: Callable[[], Result], is_there: Callable[[], object]) -> Result:
    """Call what may be done twice and may have a fault of its own: as often as tasks are tried while a service answers.

    Args:
        call: Done again, later each time.
        is_there: Asks the service; where it is away, it is waited for between the tries.

    Raises:
        TransientError: The call fails though the service answers; or the service stays away, which the error tells.
    """
    for delay_s in RETRY_DELAYS_S:
        try:
            return call()
        except TransientError as error:
            patiently(is_there)
            if not _wait(error, delay_s):
                raise
    return call()


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


@contextmanager
def waits_ended() -> Iterator[None]:
    """See to it that nobody whom the work inside has started waits on once it is over, as by Ctrl-C."""
    ending = threading.Event()
    token = _ENDING.set(ending)
    try:
        yield
    finally:
        ending.set()
        _ENDING.reset(token)


def _wait(error: TransientError, delay_s: float) -> bool:
    """Say what is waited for, and wait; whether there is still somebody to go on for."""
    get_run_logger().warning("%s Trying again in %g s.", error.message, delay_s, extra={WAITING: True})
    error.was_waited_for = _ENDING.get(threading.Event()).wait(delay_s)
    return not error.was_waited_for
