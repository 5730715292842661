"""Connections of S3 clients, of which a store takes note, so that another thread can end what waits for them."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reelabel.sources.pending import Cancellation, Watch

# botocore has no way to pass an object to a connection.
_PENDING: ContextVar[tuple[Cancellation, Watch] | None] = ContextVar("pending", default=None)


@contextmanager
def cancellable(pending: Cancellation) -> Iterator[None]:
    """Have the requests that this thread makes within the body end with `pending`.

    Raises:
        ReadingEndedError: It has ended.
    """
    with pending.reading(), pending.requesting() as watch:
        token = _PENDING.set((pending, watch))
        try:
            yield
        finally:
            _PENDING.reset(token)


def make_cancellable(client: Any) -> None:  # noqa: ANN401 - boto3 creates its classes at run time
    """Let the requests of a new client be ended; without this, they end by their timeouts."""
    pools = client._endpoint.http_session._pool_classes_by_scheme  # noqa: SLF001 - see `_PENDING`; a test notices
    pools.update(http=_Pool, https=_TLSPool)


def pause(seconds: float) -> None:
    """Wait before another attempt of this thread's request.

    Raises:
        ReadingEndedError: Reads have been ended.
    """
    if found := _PENDING.get():
        found[0].pause(seconds)


def _watch(connection: socket.socket) -> None:
    if found := _PENDING.get():
        found[1](connection)


class _Noted:
    """Takes note of a connection while it is made, and whenever it is used again."""

    def _new_conn(self: Any) -> socket.socket:
        try:
            return _connect(self)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"Connection to {self.host} timed out.") from error
        except OSError as error:
            raise NewConnectionError(self, f"Failed to establish a new connection: {error}") from error

    def request(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 - urllib3's own
        if (connected := getattr(self, "sock", None)) is not None:
            _watch(connected)
        super().request(*arguments, **named)  # type: ignore[misc]


def _connect(connection: Any) -> socket.socket:  # noqa: ANN401 - botocore has no types
    """Connect as urllib3 does, which shows its sockets to nobody before they are connected."""
    failed: OSError | None = None
    host = connection.host.strip("[]")
    for family, kind, protocol, _, place in socket.getaddrinfo(host, connection.port, type=socket.SOCK_STREAM):
        connected = socket.socket(family, kind, protocol)
        try:
            for option in connection.socket_options or ():
                connected.setsockopt(*option)
            connected.settimeout(connection.timeout)
            _watch(connected)
            connected.connect(place)
            _watch(connected)  # what ended it before it was connected had no effect
        except OSError as error:
            failed = error
            connected.close()
        except BaseException:
            connected.close()
            raise
        else:
            return connected
    raise failed or OSError(f"{host} has no address")


class _Connection(_Noted, AWSHTTPConnection):  # type: ignore[misc]
    pass


class _TLSConnection(_Noted, AWSHTTPSConnection):  # type: ignore[misc]
    pass


class _Pool(AWSHTTPConnectionPool):  # type: ignore[misc]
    ConnectionCls = _Connection


class _TLSPool(AWSHTTPSConnectionPool):  # type: ignore[misc]
    ConnectionCls = _TLSConnection
