"""Waiting for a service that is away for a moment, where no task of Prefect's does so."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from prefect import get_run_logger

from infra.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Callable

    Result = TypeVar("Result")

RETRY_DELAYS_S = (2.0, 10.0, 30.0)


def patiently(call: Callable[[], Result]) -> Result:
    """Call what may be done twice, and do so again, later each time, while a service is away.

    Raises:
        TransientError: It stays away.
    """
    for delay_s in RETRY_DELAYS_S:
        try:
            return call()
        except TransientError as error:
            get_run_logger().warning("%s Trying again in %g s.", error.message, delay_s)
            time.sleep(delay_s)
    return call()
