"""Connections of urllib3 whose sockets are watched by the request that uses them, from before they connect."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from reelabel.sources.cancel import current_watchdog

if TYPE_CHECKING:
    from collections.abc import Sequence


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
