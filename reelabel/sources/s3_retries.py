"""Which S3 requests are repeated, and when.

botocore's own retries give up where a store refuses most requests: refusals count as attempts, and use up a quota that
all requests of a client share.
"""

from __future__ import annotations

import random
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ConnectionError as NoConnectionError
from botocore.exceptions import HTTPClientError

from reelabel.sources.s3_connections import pause

if TYPE_CHECKING:
    from reelabel.sources.options import S3Options

BOTOCORE_RETRIES = {"total_max_attempts": 1, "mode": "standard"}  # none
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_REFUSALS = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
_FAULTS = {HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT}
_REFUSAL_CODE = "SlowDown"
_FAULT_CODES = {"RequestTimeout", "InternalError"}


class Retries:
    """Repeats requests of a client: faults as often as the settings say, refusals of a busy store for a time."""

    def __init__(self, settings: S3Options) -> None:
        """Store how often, and for how long."""
        self._max_attempts = settings.max_attempts
        # A store that is too busy may take as long to accept a request as a silent one may take to answer it.
        self._refusals_s = settings.connect_timeout_s + settings.read_timeout_s

    def __call__(
        self,
        *,
        attempts: int,
        response: tuple[Any, dict[str, Any]] | None,
        caught_exception: Exception | None,
        request_dict: dict[str, Any],
        **_: object,
    ) -> float | None:
        """Answer botocore's question whether to try again: 0 after a pause, None for no.

        Raises:
            ReadingEndedError: Reads have been ended.
        """
        pause(0)
        if self._max_attempts == 1:
            return None
        if response is not None and _is_refusal(response[1]):
            refused_since_s = request_dict["context"].setdefault("refused_since_s", time.monotonic())
            is_last = time.monotonic() - refused_since_s > self._refusals_s
        elif isinstance(caught_exception, (NoConnectionError, HTTPClientError)) or (
            response and _is_fault(response[1])
        ):
            is_last = attempts >= self._max_attempts
        else:
            return None
        if is_last:
            return None
        pause(random.uniform(0, min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**attempts)))  # noqa: S311 - not for secrets
        return 0


def _is_refusal(answer: dict[str, Any]) -> bool:
    return _status(answer) in _REFUSALS or _code(answer) == _REFUSAL_CODE


def _is_fault(answer: dict[str, Any]) -> bool:
    return _status(answer) in _FAULTS or _code(answer) in _FAULT_CODES


def _status(answer: dict[str, Any]) -> int:
    return int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(answer: dict[str, Any]) -> str:
    return str(answer.get("Error", {}).get("Code", ""))
