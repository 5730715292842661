"""What the life cycle needs to know of one service."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping, Sequence

    from infra.embedded.home import ServiceName


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a service once.

    Attributes:
        command: An absolute path and its arguments.
        environment: All variables of the process; they may hold passwords, arguments must not.
        leaves_behind: Files outside its folder that it does not remove when it ends.
    """

    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    leaves_behind: Sequence[str] = ()


class Service(Protocol):
    """One service; its file makes it from the home folder."""

    name: ServiceName
    stop_signal: signal.Signals

    def launch(self, port: int) -> Launch:
        """Prepare the service's folder and say how to start it on `port`."""

    def is_ready(self, port: int) -> bool:
        """Tell whether the service does its work."""

    def label(self) -> str:
        """Tell this start from others of the same service; a running one with another label is replaced."""
