"""Errors of boto3: which requests are retried and when, and how the others are converted to our errors."""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    ReadTimeoutError,
    ResponseStreamingError,
    SSLError,
    SSOError,
    TokenRetrievalError,
)
from botocore.exceptions import ConnectionError as NoConnectionError
from urllib3.exceptions import ProtocolError

from reelabel.errors import (
    ConfigurationError,
    DiskFullError,
    LoginRefusedError,
    ObjectMissingError,
    ObjectRefusedError,
    ReelabelError,
    StoreUnavailableError,
    TransientError,
)
from reelabel.sources.cancel import current_watchdog
from reelabel.sources.object_info import changed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reelabel.options import S3Options


# The last is of the body of a refusal, which boto3 reads without converting errors.
BROKEN_OFF = (IncompleteReadError, ResponseStreamingError, ProtocolError)
_NO_ANSWER = (NoConnectionError, HTTPClientError, ReadTimeoutError, *BROKEN_OFF)
_NO_LOGIN = (CredentialRetrievalError, SSOError, TokenRetrievalError)
_RETRIED = {HTTPStatus.CONFLICT, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
_REPLACED = {HTTPStatus.PRECONDITION_FAILED, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE}
_KEY_FAULT = "KMS."
# Of MinIO and Ceph; others answer with the status alone.
_FULL = {"XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "QuotaExceeded", "StorageFull"}
# Codes that concern the login, not the object.
_LOGIN_REFUSED = {
    *("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidSecurity", "RequestTimeTooSkewed"),
    *("ExpiredToken", "InvalidToken", "TokenRefreshRequired", "AccountProblem", "NotSignedUp"),
}


_TEMPORARY_REASONS = dict.fromkeys(("ExpiredToken", "TokenRefreshRequired"), "the login has expired; log in again") | {
    "RequestTimeTooSkewed": "the clock of this machine is wrong; set it"
}


def status_code(error: ClientError) -> int:
    return _status(error.response)


def is_missing(error: ClientError) -> bool:
    return status_code(error) == HTTPStatus.NOT_FOUND


def is_denied(error: ClientError) -> bool:
    """Return whether access may be denied: with 400, for a login that has expired."""
    return status_code(error) in {HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}


@contextmanager
def s3_errors(uri: str, endpoint_url: str | None, connect: Callable[[], Any]) -> Iterator[Any]:
    """Yield a client, and convert the errors that it raises to our own."""
    where = endpoint_url or "Amazon S3"
    try:
        yield connect()
    except ClientError as error:
        raise _refusal(error, uri, where) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise LoginRefusedError(
            f"No S3 credentials for {uri}; set store.access_key_id and store.secret_access_key."
        ) from error
    except _NO_LOGIN as error:
        raise LoginRefusedError(
            f"No S3 credentials for {uri}: {_first_line(error)}. Log in again, or set store.access_key_id and "
            "store.secret_access_key."
        ) from error
    except SSLError as error:
        raise ConfigurationError(
            f"{where} failed TLS verification, or does not support TLS: {_first_line(error)}; "
            "check store.endpoint_url, for a private CA store.ca_file, and which server listens there."
        ) from error
    except _NO_ANSWER as error:
        raise StoreUnavailableError(
            f"{where} did not respond for {uri}: {_first_line(error)}; "
            f"check {_address(where)}, and that the server is running."
        ) from error
    except (BotoCoreError, ValueError) as error:
        raise ConfigurationError(
            f"{where} cannot be used as S3 for {uri}: {_first_line(error)}; check store.endpoint_url and store.region."
        ) from error


def _refusal(error: ClientError, uri: str, where: str) -> ReelabelError:
    status, code = status_code(error), _code(error.response)
    if status in _REPLACED:
        return changed(uri)
    if code == "NoSuchKey":
        return ObjectMissingError(f"There is no object at {uri}; check the bucket and the key.")
    if status == HTTPStatus.NOT_FOUND:
        return ConfigurationError(
            f"{where} has no bucket for {uri}; create it, or check the bucket's name and store.endpoint_url."
        )
    is_refused = status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN} and code not in _FULL
    if is_refused or code in _LOGIN_REFUSED or code.startswith(_KEY_FAULT):
        return _not_allowed(status, code, uri, where)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _RETRIED or code in _FULL:
        return _unavailable(status, code, uri, where)
    return ConfigurationError(
        f"{where} rejects the request for {uri} ({code}, HTTP {status}); check {_address(where)} and store.region."
    )


def _address(where: str) -> str:
    """Name the setting of a server's address, and a likely fault: some servers just hang up on plain HTTP."""
    return f"store.endpoint_url{' (does the server need https://?)' if where.startswith('http://') else ''}"


def _unavailable(status: int, code: str, uri: str, where: str) -> TransientError:
    if status == HTTPStatus.INSUFFICIENT_STORAGE or code in _FULL:
        return DiskFullError(
            f"{where} is full: it rejects {uri} ({code}, HTTP {status}); free space there, then run the same command "
            "again."
        )
    failed = StoreUnavailableError(
        f"{where} failed for {uri} ({code}, HTTP {status}) after all attempts; try again later."
    )
    failed.failed_at = where
    return failed


def _not_allowed(status: int, code: str, uri: str, where: str) -> ConfigurationError:
    if code == "InvalidObjectState":
        return ObjectRefusedError(f"{uri} is archived ({code}); restore it to a readable storage class.")
    if code.startswith(_KEY_FAULT):
        return ObjectRefusedError(f"{where} cannot use the encryption key of {uri} ({code}); check that key.")
    if reason := _TEMPORARY_REASONS.get(code):
        return LoginRefusedError(f"{where} denies access to {uri} ({code}), as {reason}.")
    is_login = status == HTTPStatus.UNAUTHORIZED or code in _LOGIN_REFUSED
    return (LoginRefusedError if is_login else ObjectRefusedError)(
        f"{where} denies access to {uri} ({code}); check store.access_key_id and "
        "store.secret_access_key (for videos, store.video_access_key_id if set), and their permissions."
    )


def _first_line(error: Exception) -> str:
    first, *others = str(error).splitlines() or [type(error).__name__]
    return f"{first} {others[0]}" if others and first.endswith(":") else first.rstrip(".")


BOTOCORE_RETRIES = {"total_max_attempts": 1, "mode": "standard"}  # none
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_REFUSALS = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
_FAULTS = {HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT}
_REFUSAL_CODE = "SlowDown"
_FAULT_CODES = {"RequestTimeout", "InternalError"}


class Retries:
    """Repeats requests of a client: faults as often as the settings allow, refusals of a busy store for a time."""

    def __init__(self, settings: S3Options) -> None:
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
        """Answer botocore's question whether to try again: 0 after a pause, None for no."""
        _pause(0)
        if self._max_attempts == 1:
            return None
        status, code = (_status(response[1]), _code(response[1])) if response else (0, "")
        if status in _REFUSALS or code == _REFUSAL_CODE:
            refused_since_s = request_dict["context"].setdefault("refused_since_s", time.monotonic())
            is_last = time.monotonic() - refused_since_s > self._refusals_s
        elif (
            status in _FAULTS
            or code in _FAULT_CODES
            or isinstance(caught_exception, NoConnectionError | HTTPClientError)
        ):
            is_last = attempts >= self._max_attempts
        else:
            is_last = True
        if is_last:
            return None
        _pause(random.uniform(0, min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**attempts)))  # noqa: S311 - not for secrets
        return 0


def _pause(seconds: float) -> None:
    if watchdog := current_watchdog():
        watchdog.cancellation.pause(seconds)


def _status(answer: dict[str, Any]) -> int:
    return int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(answer: dict[str, Any]) -> str:
    return str(answer.get("Error", {}).get("Code", ""))
