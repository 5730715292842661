"""Reports that a session which is stopped from outside would otherwise keep to itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


class UnfinishedSession:
    """Prints each failure when it happens, and the tests that run when the session is interrupted.

    pytest prints failures at the end, which a hanging session never reaches.
    """

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal
        self._started: dict[str, float] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Remember the test as running."""
        self._started[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Forget the test."""
        self._started.pop(nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a failure at once."""
        if report.failed:
            self._terminal.ensure_newline()
            self._terminal.section(f"{report.nodeid} failed ({report.when}, {report.duration:.0f} s)")
            self._terminal.line(report.longreprtext)

    def pytest_terminal_summary(self) -> None:
        """List the tests that never finished."""
        for nodeid, started in self._started.items():
            self._terminal.line(f"not finished after {time.monotonic() - started:.0f} s: {nodeid}")
