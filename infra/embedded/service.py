"""The interface of an embedded service."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping, Sequence

    from infra.embedded.home import ServiceName


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a service.

    Attributes:
        command: An absolute path and its arguments.
        environment: All its environment variables. Passwords belong here, not in arguments.
        leaves_behind: Files outside its folder that it does not remove on exit.
    """

    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    leaves_behind: Sequence[str] = ()


class Service(Protocol):
    """An embedded service."""

    name: ServiceName
    stop_signal: signal.Signals

    def launch(self, port: int) -> Launch:
        """Prepare the service's folder, and return how to start it on `port`."""

    def is_ready(self, port: int) -> bool:
        """Return whether the service is ready for use."""

    def label(self) -> str:
        """Identify the configuration of this start; a running service with another label is replaced."""
