"""What goes wrong on S3, in our own words."""

from __future__ import annotations

from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    ReadTimeoutError,
    ResponseStreamingError,
    SSLError,
)
from botocore.exceptions import ConnectionError as NoConnectionError

from infra.errors import (
    ConfigurationError,
    ObjectMissingError,
    ObjectRefusedError,
    ReelabelError,
    StoreUnavailableError,
)
from infra.object_info import changed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BROKEN_OFF = (IncompleteReadError, ResponseStreamingError)
_NO_ANSWER = (NoConnectionError, HTTPClientError, ReadTimeoutError, *BROKEN_OFF)
_RETRIED = {HTTPStatus.CONFLICT, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
_KEY_FAULT = "KMS."
# The login is refused, whatever it asks for.
_LOGIN_REFUSED = {
    *("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidSecurity", "RequestTimeTooSkewed"),
    *("ExpiredToken", "InvalidToken", "TokenRefreshRequired", "AccountProblem", "NotSignedUp"),
}


def status_code(error: ClientError) -> int:
    """Give the HTTP status of a refusal."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def is_missing(error: ClientError) -> bool:
    """Tell whether the object or its bucket is not there."""
    return status_code(error) == HTTPStatus.NOT_FOUND


@contextmanager
def s3_errors(uri: str, endpoint_url: str | None, connect: Callable[[], Any]) -> Iterator[Any]:
    """Yield a client, and turn what it raises into our errors."""
    where = endpoint_url or "Amazon S3"
    try:
        yield connect()
    except ClientError as error:
        raise _refusal(error, uri, where) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise ConfigurationError(
            f"{uri} needs credentials: set store.access_key_id and store.secret_access_key."
        ) from error
    except SSLError as error:
        raise ConfigurationError(
            f"{where} is not who it should be, or speaks no TLS: {_first_line(error)}; "
            "check store.endpoint_url, and store.ca_file for an authority of your own."
        ) from error
    except _NO_ANSWER as error:
        raise StoreUnavailableError(
            f"{where} did not answer for {uri}: {_first_line(error)}; check that it runs and store.endpoint_url."
        ) from error
    except (BotoCoreError, ValueError) as error:
        raise ConfigurationError(
            f"{where} cannot be used as S3 for {uri}: {_first_line(error)}; check store.endpoint_url and store.region."
        ) from error


def _refusal(error: ClientError, uri: str, where: str) -> ReelabelError:
    status, code = status_code(error), error.response.get("Error", {}).get("Code", "")
    if status == HTTPStatus.PRECONDITION_FAILED:
        return changed(uri)
    if code == "NoSuchKey":
        return ObjectMissingError(f"No object stands at {uri}; check the bucket and the key.")
    if status == HTTPStatus.NOT_FOUND:
        return ConfigurationError(f"{where} has no bucket for {uri}; make it, or correct store.uri.")
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN} or code.startswith(_KEY_FAULT):
        return _not_allowed(status, code, uri, where)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _RETRIED:
        return StoreUnavailableError(f"{where} failed for {uri} ({code}, HTTP {status}) after all attempts; try again.")
    return ConfigurationError(
        f"{where} does not take the request for {uri} ({code}, HTTP {status}); "
        "check store.endpoint_url and store.region."
    )


def _not_allowed(status: int, code: str, uri: str, where: str) -> ConfigurationError:
    if code == "InvalidObjectState":
        return ObjectRefusedError(f"{uri} is archived ({code}); restore it to a storage class that can be read.")
    if code.startswith(_KEY_FAULT):
        return ObjectRefusedError(f"{where} cannot use the encryption key of {uri} ({code}); check that key.")
    is_login = status == HTTPStatus.UNAUTHORIZED or code in _LOGIN_REFUSED
    return (ConfigurationError if is_login else ObjectRefusedError)(
        f"{where} refuses {uri} ({code}); check store.access_key_id, store.secret_access_key and what they allow."
    )


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
