"""Connections of urllib3 whose sockets are watched by the request that uses them, from before they connect.

Those to the web check their hosts and addresses: a host name is resolved once, all its addresses are checked, and the
connection is made to one of them. There is no second look-up that could return another address (DNS rebinding). The
check is part of connecting, so redirects are checked like first requests. TLS still verifies the host name.
"""

from __future__ import annotations

import socket
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Any

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.util import Timeout

from reelabel.errors import ObjectMissingError, VideoRefusedError
from reelabel.sources.cancel import current_watchdog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reelabel.options import WebOptions


class WatchedConnection:
    """A mixin of urllib3's connections and of their subclasses."""

    def addresses(self: Any) -> Sequence[str]:
        """Return where to connect to: host names or addresses, in this order."""
        return [self.host.strip("[]")]

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
        """Send a request, also over a connection that was made for an earlier one."""
        if (connected := getattr(self, "sock", None)) is not None and (watchdog := current_watchdog()):
            watchdog.watch(connected)
        super().request(*arguments, **named)  # type: ignore[misc]


def watched_pools(mixin: type[WatchedConnection], plain: type[Any], tls: type[Any]) -> dict[str, type[Any]]:
    """Return kinds of pools by scheme, whose connections have a mixin."""

    def watched(pool: type[Any]) -> type[Any]:
        connection = type(f"Watched{pool.ConnectionCls.__name__}", (mixin, pool.ConnectionCls), {})
        return type(f"Watched{pool.__name__}", (pool,), {"ConnectionCls": connection})

    return {"http": watched(plain), "https": watched(tls)}


def _connect(connection: Any) -> socket.socket:  # noqa: ANN401 - a connection of any subclass
    """Connect as urllib3 does, which itself exposes sockets only once they are connected."""
    failed: OSError | None = None
    for address in connection.addresses():
        for family, kind, protocol, _, place in socket.getaddrinfo(address, connection.port, type=socket.SOCK_STREAM):
            try:
                return _connect_to(place, socket.socket(family, kind, protocol), connection)
            except OSError as error:
                failed = error
    raise failed or OSError(f"{connection.host} has no address")


def _connect_to(place: Any, connected: socket.socket, connection: Any) -> socket.socket:  # noqa: ANN401
    watchdog = current_watchdog()
    try:
        for option in connection.socket_options or ():
            connected.setsockopt(*option)
        connected.settimeout(connection.timeout)
        if watchdog:
            watchdog.watch(connected)
        connected.connect(place)
        if watchdog:
            watchdog.check()  # a shutdown just before had no effect
    except BaseException:
        connected.close()
        raise
    return connected


_SPECIAL = IPv4Network("192.0.0.0/24")  # RFC 6890; not all versions of Python treat all of it as private
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address


class AddressFilter:
    def __init__(self, options: WebOptions) -> None:
        self._options = options

    def addresses(self, host: str, port: int) -> list[str]:
        """Resolve a host name, and check its addresses.

        Raises VideoRefusedError if the host or one of its addresses is not allowed, ObjectMissingError if there is no
        such host, and OSError if the name service does not respond.
        """
        name, patterns = host.lower().rstrip("."), self._options.allow_hosts
        if patterns and not any(fnmatchcase(name, pattern.lower()) for pattern in patterns):
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
        within = any(_unwrapped(ip_address(address)) in network for network in self._options.allow_networks)
        return self._options.allow_private or within or is_public(address)


def is_public(address: str) -> bool:
    """Return whether an address is public; of an IPv6 address that embeds an IPv4 address, the latter counts."""
    ip = _unwrapped(ip_address(address))
    is_site_local = isinstance(ip, IPv6Address) and ip.is_site_local
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or is_site_local or ip in _SPECIAL)


def filtered_pools(settings: WebOptions) -> PoolManager:
    """Create connection pools that check every address; proxies of the environment are not used."""
    allowed = AddressFilter(settings)

    class Filtered(WatchedConnection):
        host: str
        port: int

        def addresses(self) -> list[str]:
            return allowed.addresses(self.host, self.port)

    timeout = Timeout(connect=settings.timeout_s, read=settings.timeout_s)
    pools = PoolManager(maxsize=settings.max_concurrency, timeout=timeout)
    pools.pool_classes_by_scheme = watched_pools(Filtered, HTTPConnectionPool, HTTPSConnectionPool)
    return pools


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
