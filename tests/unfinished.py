"""Reports that a session which is stopped from outside would otherwise keep to itself."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable


OUT_OF_TIME = "out of time (--minutes)"


class UnfinishedSession:
    """Prints each failure when it happens, and what an interrupted or limited session has not finished and not begun.

    pytest prints failures at the end, which a hanging session never reaches.
    """

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal
        self._started: dict[str, float] = {}
        self._waiting: set[str] = set()
        self._left_out: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Remember all tests as waiting."""
        self._waiting.update(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Iterable[str]) -> None:  # noqa: ARG002 - a hook's
        """Remember all tests as waiting; each worker of pytest-xdist collects all of them."""
        self._waiting.update(ids)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Remember the test as running."""
        self._started[nodeid] = time.monotonic()
        self._waiting.discard(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Forget the test."""
        self._started.pop(nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a failure at once; remember a test for which there was no time."""
        if report.skipped and OUT_OF_TIME in report.longreprtext:
            self._left_out.add(report.nodeid)
        if report.failed:
            self._terminal.ensure_newline()
            self._terminal.section(f"{report.nodeid} failed ({report.when}, {report.duration:.0f} s)")
            self._terminal.line(report.longreprtext)

    def pytest_terminal_summary(self, exitstatus: int) -> None:
        """List the tests that never finished, and the files of those that never began."""
        for nodeid, started in self._started.items():
            self._terminal.line(f"not finished after {time.monotonic() - started:.0f} s: {nodeid}")
        not_begun = self._left_out | (self._waiting if exitstatus == pytest.ExitCode.INTERRUPTED else set())
        for file, count in sorted(Counter(nodeid.partition("::")[0] for nodeid in not_begun).items()):
            self._terminal.line(f"not begun: {count} of {file}")
