"""Checks of the hosts and addresses that are read over the web, and deadlines.

A host name is resolved once, all its addresses are checked, and the connection is made to one of them: there is no
second look-up that could return another address (DNS rebinding). The check is part of connecting, so redirects are
checked like first requests. TLS still verifies the host name.
"""

from __future__ import annotations

import io
import socket
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase
from http.client import HTTPResponse
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Any

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util import Timeout

from reelabel.errors import ObjectMissingError, StoreUnavailableError, VideoRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import WriteableBuffer

    from reelabel.sources.options import WebOptions
    from reelabel.sources.pending import Watch


@dataclass(slots=True)
class Deadline:
    """The time by which all requests for an object must have ended.

    Attributes:
        uri: The object, as shown in messages.
        at_s: Time of the deadline, by `time.monotonic`.
        watch: Takes note of the connections of the current request.
    """

    uri: str
    at_s: float
    watch: Watch

    def left_s(self) -> float:
        """Return the seconds left, which are more than 0.

        Raises:
            StoreUnavailableError: The deadline has passed.
        """
        left_s = self.at_s - time.monotonic()
        if left_s <= 0:
            raise StoreUnavailableError(f"{self.uri} took longer than web.total_timeout_s; raise it, or try again.")
        return left_s

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Apply the deadline to requests that this thread begins."""
        token = _of_requests.set(self)
        try:
            yield
        finally:
            _of_requests.reset(token)


# urllib3 has no way to pass an object to a connection and its response.
_of_requests: ContextVar[Deadline] = ContextVar("deadline")


def deadline_of_request() -> Deadline:
    """Return the deadline of this thread's current request."""
    return _of_requests.get()


class DatedResponse(HTTPResponse):
    """A response whose header and body are read under the deadline of its request."""

    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 - http.client's own
        """Read from `sock` under the current deadline."""
        super().__init__(sock, *arguments, **named)
        deadline = deadline_of_request()
        deadline.watch(sock)  # also of a connection that was made for an earlier request
        self.fp = io.BufferedReader(_DatedReader(self.fp.detach(), sock, deadline))


class _DatedReader(io.RawIOBase):
    """Limits each read to the time left, because a socket's timeout starts again with each read."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, deadline: Deadline) -> None:
        self._raw = raw
        self._sock = sock
        self._deadline = deadline
        self._timeout_s: float = sock.gettimeout() or 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        self._sock.settimeout(min(self._timeout_s, self._deadline.left_s()))
        try:
            return self._raw.readinto(buffer)
        except TimeoutError:
            self._deadline.left_s()  # report a passed deadline rather than a timeout
            raise

    def close(self) -> None:
        self._raw.close()
        super().close()


_SPECIAL = IPv4Network("192.0.0.0/24")  # RFC 6890; not all versions of Python treat all of it as private
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The hosts and addresses that the settings allow.

    Attributes:
        allow_hosts: Names, or patterns such as `*.example.com`; if empty, all are allowed.
        allow_networks: Networks allowed in addition to the public internet.
        allow_private: Allow all addresses that are not public.
    """

    allow_hosts: tuple[str, ...]
    allow_networks: tuple[IPv4Network | IPv6Network, ...]
    allow_private: bool

    def addresses(self, host: str, port: int) -> list[str]:
        """Resolve a host name, and check its addresses.

        Raises:
            VideoRefusedError: The host or one of its addresses is not allowed.
            ObjectMissingError: The host does not exist.
            OSError: The name service does not respond.
        """
        name = host.lower().rstrip(".")
        if self.allow_hosts and not any(fnmatchcase(name, pattern.lower()) for pattern in self.allow_hosts):
            raise VideoRefusedError(f"{host} is not in web.allow_hosts; add it to allow it.")
        found = _resolve(host, port)
        refused = [address for address in found if not self._allows(address)]
        if refused:
            raise VideoRefusedError(
                f"{host} is at {refused[0]}, not on the public internet; "
                "add its network to web.allow_networks to allow it."
            )
        return found

    def _allows(self, address: str) -> bool:
        within = any(_unwrapped(ip_address(address)) in network for network in self.allow_networks)
        return self.allow_private or within or is_public(address)


def is_public(address: str) -> bool:
    """Return whether an address is public; of an IPv6 address that embeds an IPv4 address, the latter counts."""
    ip = _unwrapped(ip_address(address))
    is_site_local = isinstance(ip, IPv6Address) and ip.is_site_local
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or is_site_local or ip in _SPECIAL)


def guarded_pools(settings: WebOptions) -> PoolManager:
    """Create connection pools that check every connection; proxies from the environment are not used."""
    guard = Guard(
        allow_hosts=settings.allow_hosts,
        allow_networks=settings.allow_networks,
        allow_private=settings.allow_private,
    )

    class GuardedConnection(HTTPConnection):
        response_class = DatedResponse

        def _new_conn(self) -> socket.socket:
            return _connect(self, guard)

    class GuardedTLSConnection(HTTPSConnection):
        response_class = DatedResponse

        def _new_conn(self) -> socket.socket:
            return _connect(self, guard)

    class GuardedPool(HTTPConnectionPool):
        ConnectionCls = GuardedConnection

    class GuardedTLSPool(HTTPSConnectionPool):
        ConnectionCls = GuardedTLSConnection

    timeout = Timeout(connect=settings.timeout_s, read=settings.timeout_s)
    pools = PoolManager(maxsize=settings.max_concurrency, timeout=timeout)
    pools.pool_classes_by_scheme = {"http": GuardedPool, "https": GuardedTLSPool}
    return pools


def _connect(connection: HTTPConnection, guard: Guard) -> socket.socket:
    *others, last = guard.addresses(connection.host, connection.port)
    for address in others:
        try:
            return _connect_to(address, connection)
        except OSError:
            continue
    return _connect_to(last, connection)


def _connect_to(address: str, connection: HTTPConnection) -> socket.socket:
    deadline, timeout_s = deadline_of_request(), connection.timeout or 0.0
    [(family, kind, protocol, _, place), *_] = socket.getaddrinfo(
        address, connection.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )
    connected = socket.socket(family, kind, protocol)
    try:
        for option in connection.socket_options or ():
            connected.setsockopt(*option)
        deadline.watch(connected)
        connected.settimeout(min(timeout_s, deadline.left_s()))
        connected.connect(place)
        deadline.watch(connected)  # what ended it before it was connected had no effect
        connected.settimeout(min(timeout_s, deadline.left_s()))  # for the TLS handshake
    except BaseException as error:
        connected.close()
        if isinstance(error, TimeoutError):
            deadline.left_s()  # report a passed deadline rather than a timeout
        raise
    return connected


def _resolve(host: str, port: int) -> list[str]:
    """Return the distinct addresses of a host name, which may be a number in any form (`127.1`, `0x7f000001`)."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno not in {socket.EAI_NONAME, socket.EAI_NODATA}:
            raise
        raise ObjectMissingError(f"The host {host} does not exist; check the address.") from None
    except UnicodeError:
        raise VideoRefusedError(f"{host} is not a valid host name; check the address.") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _unwrapped(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    if isinstance(ip, IPv4Address):
        return ip
    if ip in _NAT64:
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or ip
