"""Objects on S3: read by range, copied, written, and looked up a thousand at a time by listing."""

from __future__ import annotations

import shutil
import ssl
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import fields
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import boto3
import botocore.session
from botocore.awsrequest import AWSHTTPConnectionPool, AWSHTTPSConnectionPool
from botocore.config import Config
from botocore.exceptions import ClientError, IncompleteReadError
from botocore.handlers import add_expect_header
from botocore.utils import parse_timestamp

from reelabel.errors import ConfigurationError, ObjectMissingError, ObjectRefusedError
from reelabel.options import S3Options, reveal
from reelabel.per_process import once_per_process
from reelabel.sources.connections import WatchedConnection, watched_pools
from reelabel.sources.object_info import ObjectInfo, changed, part_size, unescape_name
from reelabel.sources.s3_errors import (
    BOTOCORE_RETRIES,
    BROKEN_OFF,
    Retries,
    is_denied,
    is_missing,
    s3_errors,
    status_code,
)
from reelabel.sources.source import partial_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from reelabel.sources.cancel import Cancellation


# Fewer objects are requested one by one: a page costs a server more than an object.
FEWEST = 8
_LARGEST_PAGE = 1000


def list_objects(client: Any, bucket: str, keys: Iterable[str]) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    """Yield the listing entries of those objects of a bucket whose names are close to each other.

    Omitted are objects that do not exist, that are far from the others, or that may not be listed.
    """
    for folder, members in groupby(sorted(set(keys)), key=lambda key: key.rpartition("/")[0]):
        try:
            yield from _list_folder(client, bucket, folder and f"{folder}/", list(members))
        except ClientError:
            return  # the request for a single object reports the error


def _list_folder(client: Any, bucket: str, prefix: str, keys: Sequence[str]) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    remaining = list(keys)
    while len(remaining) >= FEWEST:
        page = client.list_objects_v2(
            Bucket=bucket,
            Prefix=prefix,
            Delimiter="/",
            StartAfter=remaining[0][:-1],  # the longest prefix that certainly sorts before the key
            MaxKeys=min(_LARGEST_PAGE, 2 * len(remaining)),
        )
        entries = page.get("Contents", ())
        wanted = set(remaining)
        found = [entry for entry in entries if entry["Key"] in wanted]
        yield from found
        if len(found) < FEWEST or not page.get("IsTruncated"):
            return
        remaining = [key for key in remaining if key > entries[-1]["Key"]]


_SCHEME = "s3://"
_CONNECTIONS = 32
_NO_ETAG = "@"  # prefix of the version of an object without an ETag
_TIME_FORMS = (datetime.fromisoformat, parsedate_to_datetime)  # in listings, and in headers
_T = TypeVar("_T")


class S3:
    def __init__(self, settings: S3Options, buckets: frozenset[str], cancellation: Cancellation) -> None:
        # Without the fields of a subclass, such as a prefix: stores that differ in them alone share a client.
        self._settings = S3Options(**{field.name: getattr(settings, field.name) for field in fields(S3Options)})
        self._buckets = buckets
        self._cancellation = cancellation

    @property
    def max_wait_s(self) -> float:
        settings = self._settings
        attempts = settings.max_attempts + (settings.max_attempts > 1)  # one more may be refusals
        return attempts * (settings.connect_timeout_s + settings.read_timeout_s)

    def stat(self, uri: str) -> ObjectInfo:
        bucket, key = _split(uri)
        with self._errors(uri) as client:
            try:
                return _describe(uri, client.head_object(Bucket=bucket, Key=key))
            except client.exceptions.ClientError as error:
                # The response to HEAD has no body with the reason: whether it is the login that is refused, or the
                # bucket that is missing.
                if not is_missing(error):
                    if is_denied(error):
                        client.list_objects_v2(Bucket=bucket, MaxKeys=1)
                    raise
                client.head_bucket(Bucket=bucket)
                raise ObjectMissingError(f"There is no object at {uri}; check the bucket and the key.") from None

    def stat_many(self, uris: Iterable[str]) -> dict[str, ObjectInfo]:
        found: dict[str, ObjectInfo] = {}
        places = sorted(_split(uri) for uri in uris)
        for bucket, group in groupby(places, key=itemgetter(0)):
            keys = [key for _, key in group]
            if len(keys) < FEWEST or not self._allows(bucket):
                continue
            with self._errors(f"{_SCHEME}{bucket}/{keys[0]}") as client:
                for entry in filter(_has_etag, list_objects(client, bucket, keys)):
                    uri = f"{_SCHEME}{bucket}/{entry['Key']}"
                    found[uri] = _describe(uri, entry)
        return found

    def read(self, uri: str, *, fingerprint: str | None, max_bytes: int | None) -> bytes:
        def take(client: Any) -> bytes:  # noqa: ANN401
            with _body(_get(client, uri, fingerprint=fingerprint, max_bytes=max_bytes)) as body:
                data: bytes = body.read()
            return data

        return self._read_body(uri, take)

    def read_range(self, uri: str, *, start: int, size: int, fingerprint: str) -> bytes:
        bucket, key = _split(uri)
        data = bytearray()
        wanted = min(size, int(fingerprint.split(":", 2)[1]) - start)

        def take(client: Any) -> bytes:  # noqa: ANN401
            while len(data) < wanted:  # some servers send less of a range than is asked for
                first = start + len(data)
                part = {"Range": f"bytes={first}-{start + wanted - 1}", **_if_match(fingerprint)}
                answer = client.get_object(Bucket=bucket, Key=key, **part)
                with _body(answer) as body:
                    expected = min(part_size(uri, answer.get("ContentRange"), start=first), wanted - len(data))
                    if _version(answer) != _version_of(fingerprint):  # not every server supports If-Match
                        raise changed(uri)
                    received = body.read(expected)
                if len(received) < expected:
                    raise IncompleteReadError(actual_bytes=len(received), expected_bytes=expected)
                data.extend(received)
            return bytes(data)

        return self._read_body(uri, take)

    def download(self, uri: str, path: Path, *, fingerprint: str | None, max_bytes: int | None) -> int:
        with partial_file(path) as file:

            def take(client: Any) -> int:  # noqa: ANN401
                file.seek(0)
                file.truncate()
                with _body(_get(client, uri, fingerprint=fingerprint, max_bytes=max_bytes)) as body:
                    shutil.copyfileobj(body, file, 1 << 20)
                return file.tell()

            return self._read_body(uri, take)

    def write_new(self, uri: str, data: bytes) -> bool:
        bucket, key = _split(uri)
        with self._errors(uri) as client:
            try:
                client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
            except client.exceptions.ClientError as error:
                if status_code(error) != HTTPStatus.PRECONDITION_FAILED:
                    raise
                return False
        return True

    def replace(self, uri: str, data: bytes) -> None:
        bucket, key = _split(uri)
        with self._errors(uri) as client:
            client.put_object(Bucket=bucket, Key=key, Body=data)

    def list(self, uri: str) -> Iterator[ObjectInfo]:
        bucket, prefix = _split(f"{uri.rstrip('/')}/", needs_key=False)
        pages: Iterator[dict[str, Any]] | None = None
        while True:
            with self._errors(uri) as client:  # not while the caller works on a page
                pages = pages or iter(client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix))
                page = next(pages, None)
            if page is None:
                return
            for entry in page.get("Contents", ()):
                found = f"{_SCHEME}{bucket}/{entry['Key']}"
                if _has_etag(entry):
                    yield _describe(found, entry)
                else:
                    with suppress(ObjectMissingError):  # removed in the meantime
                        yield self.stat(found)

    def remove(self, uri: str) -> None:
        bucket, key = _split(uri)
        with self._errors(uri) as client:
            client.delete_object(Bucket=bucket, Key=key)

    def ensure_root(self, uri: str) -> None:
        bucket, _ = _split(f"{uri.rstrip('/')}/", needs_key=False)
        with self._errors(uri) as client:
            try:
                client.head_bucket(Bucket=bucket)
            except client.exceptions.ClientError as error:
                if not is_missing(error):
                    raise
                region = self._settings.region
                # Amazon rejects its default region if it is given explicitly.
                is_stated = not self._settings.endpoint_url and region != "us-east-1"
                location = {"CreateBucketConfiguration": {"LocationConstraint": region}} if is_stated else {}
                client.create_bucket(Bucket=bucket, **location)

    def _read_body(self, uri: str, take: Callable[[Any], _T]) -> _T:
        """Retry a response that breaks off in its body, which boto3 does not."""
        with self._errors(uri) as client:
            for _ in range(self._settings.max_attempts - 1):
                with suppress(*BROKEN_OFF):
                    return take(client)
            return take(client)

    def _allows(self, bucket: str) -> bool:
        return not self._buckets or bucket in self._buckets

    @contextmanager
    def _errors(self, uri: str) -> Iterator[Any]:
        bucket, _ = _split(uri, needs_key=False)
        if not self._allows(bucket):
            raise ObjectRefusedError(f"The bucket {bucket} is not in store.read_buckets; add it to allow it.")
        with (
            self._cancellation.watching(),
            s3_errors(uri, self._settings.endpoint_url, lambda: _client(self._settings)) as client,
        ):
            yield client


def sign_url(settings: S3Options, uri: str, *, valid_s: int) -> str:
    """Return a presigned `http(s)://` URL from which an object can be read for `valid_s` seconds."""
    bucket, key = _split(uri)
    url: str = _client(settings).generate_presigned_url(
        "get_object", Params={"Bucket": bucket, "Key": key}, ExpiresIn=valid_s
    )
    return url


def _split(uri: str, *, needs_key: bool = True) -> tuple[str, str]:
    bucket, _, key = uri.removeprefix(_SCHEME).partition("/")
    if not bucket or (needs_key and not key):
        raise ConfigurationError(f"{uri} does not name an object; write s3://bucket/key.")
    return bucket, unescape_name(key)


def _describe(uri: str, answer: dict[str, Any]) -> ObjectInfo:
    size_bytes = answer.get("ContentLength", answer.get("Size"))
    if size_bytes is None:
        raise ObjectRefusedError(f"The server of {uri} sends no length; check what is in front of store.endpoint_url.")
    return ObjectInfo(
        uri=uri,
        size_bytes=size_bytes,
        fingerprint=f"s3:{size_bytes}:{_version(answer)}",
        modified=answer.get("LastModified"),
    )


def _has_etag(entry: dict[str, Any]) -> bool:
    """Return whether an entry of a listing is enough to describe an object: version ids are not listed."""
    return "ETag" in entry


def _version(answer: dict[str, Any]) -> str:
    """Return what identifies a version beside its size: the ETag, or version id and time of stores that send none."""
    if etag := answer.get("ETag"):
        return str(etag).strip('"')
    time = answer.get("LastModified")
    return f"{_NO_ETAG}{answer.get('VersionId', '')}@{time.isoformat() if time else ''}"


def _get(client: Any, uri: str, *, fingerprint: str | None, max_bytes: int | None) -> dict[str, Any]:  # noqa: ANN401
    bucket, key = _split(uri)
    answer: dict[str, Any] = client.get_object(Bucket=bucket, Key=key, **_if_match(fingerprint))
    try:
        _describe(uri, answer).require(fingerprint=fingerprint, max_bytes=max_bytes)
    except BaseException:
        answer["Body"].close()
        raise
    return answer


def _body(answer: dict[str, Any]) -> AbstractContextManager[Any]:
    """Return a response's body. Used as a context manager itself, boto3's does not detect that it broke off."""
    return closing(answer["Body"])


def _if_match(fingerprint: str | None) -> dict[str, str]:
    if fingerprint is None or _version_of(fingerprint).startswith(_NO_ETAG):
        return {}
    return {"IfMatch": f'"{_version_of(fingerprint)}"'}


def _version_of(fingerprint: str) -> str:
    return fingerprint.split(":", 2)[2]


@once_per_process
def _client(settings: S3Options) -> Any:  # noqa: ANN401 - boto3 creates its classes at run time
    client = _session(settings).client(
        "s3",
        endpoint_url=settings.endpoint_url,
        region_name=settings.region,
        aws_access_key_id=reveal(settings.access_key_id),
        aws_secret_access_key=reveal(settings.secret_access_key),
        # If None, botocore uses AWS_CA_BUNDLE or its own list; verification is never off.
        verify=_authority(settings),
        config=_config(settings),
    )
    pools = client._endpoint.http_session._pool_classes_by_scheme  # noqa: SLF001 - no public way; a test notices
    pools.update(watched_pools(WatchedConnection, AWSHTTPConnectionPool, AWSHTTPSConnectionPool))
    client.meta.events.register_first("needs-retry.s3", Retries(settings))
    # A server that refuses a request before its body would take the connection's next request for that body.
    client.meta.events.unregister("before-call.s3", add_expect_header)
    return client


def parse_time(text: str) -> datetime:
    """Parse a time. botocore's parser guesses the format, which takes most of the time of parsing a listing."""
    for read in _TIME_FORMS:
        with suppress(ValueError):
            return read(text)
    time: datetime = parse_timestamp(text)
    return time


def _session(settings: S3Options) -> boto3.session.Session:
    # The user's AWS profile is not read if the options say everything: a missing profile would be an error.
    is_said = settings.endpoint_url and settings.access_key_id and settings.ca_file
    core = _without_profile() if is_said else botocore.session.get_session()
    core.register_component("data_loader", _loader())
    core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse_time)
    return boto3.session.Session(botocore_session=core)


@cache
def _loader() -> Any:  # noqa: ANN401 - botocore has no types
    """Return botocore's descriptions of S3: reading them takes most of the time in which a client is created."""
    return _without_profile().get_component("data_loader")


def _without_profile() -> botocore.session.Session:
    core = botocore.session.get_session()
    for name in ("profile", "config_file", "credentials_file"):  # not by the session, which takes None for unset
        core.get_component("config_store").set_config_variable(name, None)
    return core


def _authority(settings: S3Options) -> str | None:
    path = settings.ca_file
    if path is None:
        return None
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:
        raise ConfigurationError(
            f"store.ca_file {path} cannot be used ({error.strerror or error}); it must be a PEM file of certificates."
        ) from error
    return str(path)


def _config(settings: S3Options) -> Config:
    # Servers other than Amazon's have no host names for buckets, and not all support the newer checksums.
    compatibility = (
        {
            "s3": {"addressing_style": "path"},
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        }
        if settings.endpoint_url
        else {}
    )
    return Config(
        # botocore would otherwise build its own for each request.
        user_agent=f"reelabel/{version('reelabel')}",
        connect_timeout=settings.connect_timeout_s,
        read_timeout=settings.read_timeout_s,
        retries=BOTOCORE_RETRIES,
        max_pool_connections=_CONNECTIONS,
        **compatibility,
    )
