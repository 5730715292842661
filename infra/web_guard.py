"""Which hosts and addresses of the web may be read.

A name is resolved once, every address it gives is checked, and the connection goes to one of those
very addresses: no second look-up could give another one (DNS rebinding). It happens where a
connection is made, so that a redirect is checked like a first request. TLS still verifies the name.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util import Timeout
from urllib3.util.connection import create_connection

from infra.errors import ObjectMissingError, VideoRefusedError
from infra.web_deadline import DatedResponse, deadline_of_request

if TYPE_CHECKING:
    from infra.settings import WebSettings

_SPECIAL = IPv4Network("192.0.0.0/24")  # RFC 6890; not every Python calls all of it private
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The user's word on what may be read.

    Attributes:
        allow_hosts: Names, or patterns such as `*.example.com`; empty allows all.
        allow_networks: Networks off the public internet that may be read.
        allow_private: Allow every address off the public internet.
    """

    allow_hosts: tuple[str, ...]
    allow_networks: tuple[IPv4Network | IPv6Network, ...]
    allow_private: bool

    def addresses(self, host: str, port: int) -> list[str]:
        """Resolve a name to addresses that may be connected to.

        Raises:
            VideoRefusedError: The host is not allowed, or one of its addresses is not.
            ObjectMissingError: No such host is known.
            OSError: The name service does not answer.
        """
        name = host.lower().rstrip(".")
        if self.allow_hosts and not any(fnmatchcase(name, pattern.lower()) for pattern in self.allow_hosts):
            raise VideoRefusedError(f"{host} is not one of web.allow_hosts; add it there if it may be read.")
        found = _resolve(host, port)
        refused = [address for address in found if not self._allows(address)]
        if refused:
            raise VideoRefusedError(
                f"{host} is at {refused[0]}, not on the public internet; "
                "add its network to web.allow_networks if it may be read."
            )
        return found

    def _allows(self, address: str) -> bool:
        within = any(_unwrapped(ip_address(address)) in network for network in self.allow_networks)
        return self.allow_private or within or is_public(address)


def is_public(address: str) -> bool:
    """Tell whether an address belongs to the public internet, also the one that it may carry inside."""
    ip = _unwrapped(ip_address(address))
    is_site_local = isinstance(ip, IPv6Address) and ip.is_site_local
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or is_site_local or ip in _SPECIAL)


def guarded_pools(settings: WebSettings) -> PoolManager:
    """Make connection pools whose every connection is guarded; proxies of the environment are not used."""
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
    try:
        connected = create_connection(
            (address, connection.port),
            min(timeout_s, deadline.left_s()),
            source_address=connection.source_address,
            socket_options=connection.socket_options,
        )
    except TimeoutError:
        deadline.left_s()  # where none is left, that is the reason
        raise
    connected.settimeout(min(timeout_s, deadline.left_s()))  # for a handshake
    return connected


def _resolve(host: str, port: int) -> list[str]:
    """Give a name's addresses, each once; all ways to write a number (`127.1`, `0x7f000001`) are resolved too."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno not in {socket.EAI_NONAME, socket.EAI_NODATA}:
            raise
        raise ObjectMissingError(f"No host is known as {host}; check the address.") from None
    except UnicodeError:
        raise VideoRefusedError(f"{host} cannot be the name of a host; check the address.") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _unwrapped(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    if isinstance(ip, IPv4Address):
        return ip
    if ip in _NAT64:
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or ip
