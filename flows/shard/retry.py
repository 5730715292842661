"""Retries while a service is unavailable, so that an outage does not end a run."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain, repeat
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from infra.embedded import full_disk_behind
from infra.logs import IS_OUTAGE
from infra.settings import load_settings
from reelabel.errors import DiskFullError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

RETRY_DELAYS_S = (2.0, 10.0, 30.0)
# Long enough for a Postgres failover, or for a model server to load again.
OUTAGE_S = 600.0
# Tasks inherit it from the flow that submitted them.
_ENDING: ContextVar[threading.Event] = ContextVar("ending")


def retry_outage(call: Callable[Arguments, Result], *arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
    """Call an idempotent function, and retry with growing delays while a service is unavailable.

    Raises:
        TransientError: The service has been unavailable for ten minutes, or the flow is ending; the error is marked
            so that it is not retried again.
    """
    until_s = time.monotonic() + OUTAGE_S
    delays_s = chain(RETRY_DELAYS_S, repeat(RETRY_DELAYS_S[-1]))
    while True:
        try:
            return call(*arguments, **options)
        except TransientError as error:
            if error.retries_exhausted:
                raise
            delay_s = next(delays_s)
            error.retries_exhausted = time.monotonic() + delay_s > until_s
            if error.retries_exhausted or not _log_and_wait(error, delay_s):
                raise


def retry_faults(call: Callable[[], Result], services: Mapping[type[TransientError], Callable[[], object]]) -> Result:
    """Call an idempotent function that may fail although its services respond; try four times in all.

    `services` has a check of a service for each class of error that its outage raises. After a failure of that class,
    the check is retried until the service responds.

    Raises:
        TransientError: The call fails although the services respond, or one of them stays unavailable.
        DiskFullError: The disk of the embedded services is why the call failed.
    """
    delays_s = iter(RETRY_DELAYS_S)
    while True:
        try:
            return call()
        except TransientError as failed:
            error = full_disk_behind(failed, load_settings().home) or failed
            if failed.retries_exhausted:
                raise error from failed.__cause__
            check = next((check for kind, check in services.items() if isinstance(failed, kind)), None)
            if check and not isinstance(error, DiskFullError):
                retry_outage(check)
            delay_s = next(delays_s, None)
            if delay_s is None or not _log_and_wait(error, delay_s):
                raise error from failed.__cause__


@contextmanager
def cancel_waits_at_exit() -> Iterator[None]:
    """Cancel all waits started in the body when the body ends, for example by Ctrl-C."""
    ending = threading.Event()
    token = _ENDING.set(ending)
    try:
        yield
    finally:
        ending.set()
        _ENDING.reset(token)


def _log_and_wait(error: TransientError, delay_s: float) -> bool:
    from prefect import get_run_logger  # noqa: PLC0415 - commands import this module before they configure Prefect

    cause = full_disk_behind(error, load_settings().home) or error
    get_run_logger().warning("%s Retrying in %g s.", cause.message, delay_s, extra={IS_OUTAGE: True})
    error.retries_exhausted = _ENDING.get(threading.Event()).wait(delay_s)
    return not error.retries_exhausted
