"""What a refusal of an S3 server means: for one object, for the login, for the run, or to try again."""

import time

import pytest
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    IncompleteReadError,
    NoCredentialsError,
    NoRegionError,
    SSLError,
    TokenRetrievalError,
)

from reelabel.errors import (
    ConfigurationError,
    DiskFullError,
    LoginRefusedError,
    ObjectChangedError,
    ObjectMissingError,
    ObjectRefusedError,
    ReadingEndedError,
    ReelabelError,
    StoreUnavailableError,
    VideoRefusedError,
    VideoUnavailableError,
)
from reelabel.options import S3Options
from reelabel.sources.cancel import Cancellation
from reelabel.sources.s3_errors import Retries, s3_errors
from reelabel.sources.source import faults_of_one_object

URI = "s3://bucket/a.mp4"
WHERE = "http://store:9000"


def answer(status, code=""):
    return {"ResponseMetadata": {"HTTPStatusCode": status}, "Error": {"Code": code}}


def raised_for(error, endpoint=WHERE):
    with pytest.raises(Exception) as raised, s3_errors(URI, endpoint, object):  # noqa: PT011 - compared by the caller
        raise error
    return raised.value


@pytest.mark.parametrize(
    ("status", "code", "kind", "message"),
    [
        (412, "PreconditionFailed", ObjectChangedError, "was replaced"),
        (416, "InvalidRange", ObjectChangedError, "was replaced"),
        (404, "NoSuchKey", ObjectMissingError, f"There is no object at {URI}"),
        (404, "NoSuchBucket", ConfigurationError, f"{WHERE} has no bucket for {URI}"),
        (403, "AccessDenied", ObjectRefusedError, "check store.access_key_id"),
        (403, "InvalidObjectState", ObjectRefusedError, "is archived (InvalidObjectState)"),
        (400, "KMS.DisabledException", ObjectRefusedError, "cannot use the encryption key"),
        (401, "", LoginRefusedError, "denies access"),
        (403, "InvalidAccessKeyId", LoginRefusedError, "denies access"),
        (400, "ExpiredToken", LoginRefusedError, "as the login has expired; log in again"),
        (403, "RequestTimeTooSkewed", LoginRefusedError, "as the clock of this machine is wrong"),
        (403, "QuotaExceeded", DiskFullError, "is full"),
        (507, "", DiskFullError, "is full"),
        (500, "InternalError", StoreUnavailableError, "(InternalError, HTTP 500) after all attempts"),
        (503, "SlowDown", StoreUnavailableError, "HTTP 503"),
        (409, "OperationAborted", StoreUnavailableError, "HTTP 409"),
        (408, "", StoreUnavailableError, "HTTP 408"),
        (429, "", StoreUnavailableError, "HTTP 429"),
        (
            400,
            "InvalidBucketName",
            ConfigurationError,
            f"{WHERE} rejects the request for {URI} (InvalidBucketName, HTTP 400)",
        ),
        (301, "PermanentRedirect", ConfigurationError, "rejects the request"),
    ],
)
def test_a_refusal_is_of_the_object_the_login_or_the_store(status, code, kind, message):
    error = raised_for(ClientError(answer(status, code), "GetObject"))

    assert type(error) is kind
    assert message in error.message
    assert getattr(error, "failed_at", None) == (WHERE if kind is StoreUnavailableError else None)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (NoCredentialsError(), LoginRefusedError, f"No S3 credentials for {URI}; set store.access_key_id"),
        (TokenRetrievalError(provider="sso", error_msg="x"), LoginRefusedError, "Log in again"),
        (SSLError(endpoint_url=WHERE, error="bad"), ConfigurationError, f"{WHERE} failed TLS verification"),
        (EndpointConnectionError(endpoint_url=WHERE), StoreUnavailableError, f"{WHERE} did not respond for {URI}"),
        (IncompleteReadError(actual_bytes=1, expected_bytes=2), StoreUnavailableError, "did not respond"),
        (NoRegionError(), ConfigurationError, "cannot be used as S3"),
        (
            ValueError("Invalid endpoint:\nnot a url\nat all"),
            ConfigurationError,
            ": Invalid endpoint: not a url; check",
        ),
        (ValueError("bad.\nmore"), ConfigurationError, ": bad; check"),
        (ValueError(), ConfigurationError, ": ValueError; check"),
    ],
)
def test_a_fault_of_the_connection_or_the_settings_is_one_sentence(error, kind, message):
    got = raised_for(error)

    assert type(got) is kind
    assert message in got.message


@pytest.mark.parametrize(
    ("endpoint", "place", "suggests_https"),
    [(WHERE, WHERE, True), ("https://store", "https://store", False), (None, "Amazon S3", False)],
)
def test_a_store_that_does_not_respond_is_named_and_plain_http_is_asked_about(endpoint, place, suggests_https):
    message = raised_for(EndpointConnectionError(endpoint_url="x"), endpoint).message

    assert message.startswith(f"{place} did not respond")
    assert ("does the server need https://?" in message) == suggests_https


def is_retried(attempts, *, status=0, code="", error=None, most=3, refused_for_s=None):
    context = {} if refused_for_s is None else {"refused_since_s": time.monotonic() - refused_for_s}
    retry = Retries(S3Options(max_attempts=most, read_timeout_s=1.5))(
        attempts=attempts,
        response=(None, answer(status, code)) if status else None,
        caught_exception=error,
        request_dict={"context": context},
    )
    assert retry in {0, None}
    return retry == 0


NOBODY = EndpointConnectionError(endpoint_url=WHERE)


@pytest.mark.parametrize(
    "fault",
    [
        *[{"status": status} for status in (500, 502, 504)],
        {"status": 400, "code": "RequestTimeout"},
        {"status": 200, "code": "InternalError"},
        {"error": NOBODY},
    ],
    ids=str,
)
def test_a_fault_is_retried_as_often_as_the_options_say(fault):
    assert [is_retried(attempts, **fault) for attempts in (1, 2, 3)] == [True, True, False]
    assert not is_retried(1, most=1, **fault)


@pytest.mark.parametrize("refusal", [{"status": 503}, {"status": 429}, {"status": 400, "code": "SlowDown"}], ids=str)
def test_a_busy_store_is_asked_again_for_as_long_as_a_silent_one_may_take(refusal):
    assert is_retried(50, **refusal)
    assert is_retried(50, refused_for_s=1, **refusal)
    assert not is_retried(2, refused_for_s=4, **refusal)
    assert not is_retried(1, most=1, **refusal)


@pytest.mark.parametrize("other", [{"status": 404}, {"status": 200}, {"error": ValueError()}, {}], ids=str)
def test_nothing_else_is_retried(other):
    assert not is_retried(1, **other)


def test_no_attempt_follows_after_requests_are_cancelled():
    cancellation = Cancellation()

    def ask_again():
        with cancellation.watching():
            cancellation.cancel()
            is_retried(1, status=500)
            pytest.fail("it is asked again")

    with pytest.raises(ReadingEndedError):
        ask_again()


@pytest.mark.parametrize(
    ("uri", "raised", "kind"),
    [
        (URI, ObjectRefusedError("no"), VideoRefusedError),
        (URI, StoreUnavailableError("out"), StoreUnavailableError),
        ("https://host/a.mp4", StoreUnavailableError("out"), VideoUnavailableError),
        ("gs://bucket/a.mp4", StoreUnavailableError("out"), VideoUnavailableError),
        (URI, LoginRefusedError("who?"), LoginRefusedError),
    ],
)
def test_what_concerns_one_object_fails_its_video_alone(uri, raised, kind):
    with pytest.raises(ReelabelError) as caught, faults_of_one_object(uri):
        raise raised
    assert type(caught.value) is kind
    assert caught.value.message == raised.message
