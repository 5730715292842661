"""Sessions of pytest in forks of a process that has imported all packages that the code needs, but none of the code.

A fork thus starts within a second, and imports the code, with what has been changed in it, from a copy of the checkout.
The services that tests share run beside them, and outlive the sessions.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tools.mutants.faults import ROOMS, ROOT, tracked_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from tools.mutants.faults import Mutant

FORK = multiprocessing.get_context("fork")
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_SERVICES_START_WITHIN_S = 900  # on a machine with much other work
_HOLDING_TEST = """
import time
from pathlib import Path

def test_services_run_until_the_file_is_removed(prefect_services, database_url):
    file = Path(__file__).with_suffix(".ready")
    file.touch()
    while file.exists():
        time.sleep(0.2)
"""


@dataclass(frozen=True, slots=True)
class Session:
    """How a session of tests ended.

    Attributes:
        passed: Whether all tests passed; None if they did not end in time.
        test: The test that failed, or else the last one that began; None if none did, as collecting them failed.
        test_s: How long that test took, or collecting.
    """

    passed: bool | None
    test: str | None
    test_s: float


class Checkout:
    """A copy of the tracked files, in a folder that also has the temporary files of its tests."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "checkout"
        self._folder = folder
        self._times = count(1)

    def fill(self) -> None:
        """Copy the files, and link the environments."""
        for name in tracked_files():
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.path / name)
        for environment in (".venv", ".venv-engine"):
            (self.path / environment).symlink_to(ROOT / environment)

    def run(self, tests: Sequence[str], *options: str, within_s: float, share_services: bool = True) -> Session:
        """Run tests, which are files or single tests, up to the first failure; kill them when the time is over."""
        shutil.rmtree(self._folder / "alone", ignore_errors=True)
        # The services are in the folder that has the session's: see tests/shared.py.
        folder = self._folder / ("session" if share_services else "alone/session")
        reader, process = self._start([*tests, *options], folder)
        try:
            return _follow(reader, within_s)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid or 0, signal.SIGKILL)
            process.join()

    @contextmanager
    def with_fault(self, mutant: Mutant) -> Iterator[None]:
        """Have a fault in the copy while the body runs."""
        path = self.path / mutant.file
        source, status = path.read_bytes(), path.stat()
        path.write_bytes(mutant.applied(source))
        os.utime(path, times=(next(self._times), next(self._times)))  # by its time, compiled code is known as outdated
        try:
            yield
        finally:
            path.write_bytes(source)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    @contextmanager
    def services_held(self) -> Iterator[None]:
        """Have the services that tests share run until the body ends."""
        test = self.path / "tests/test_services_held.py"
        ready = test.with_suffix(".ready")
        test.write_text(_HOLDING_TEST)
        _reader, process = self._start([str(test.relative_to(self.path)), "--timeout=0"], self._folder / "held")
        deadline_s = time.monotonic() + _SERVICES_START_WITHIN_S
        while not ready.exists():
            if not process.is_alive() or time.monotonic() > deadline_s:
                raise RuntimeError("the services of the tests do not start; run `make test`")
            time.sleep(0.1)
        test.unlink()
        try:
            yield
        finally:
            ready.unlink(missing_ok=True)
            process.join()

    def _start(self, arguments: Sequence[str], folder: Path) -> tuple[Connection, BaseProcess]:
        temporary = folder.with_name(f"{folder.name}-tmp")
        for each in (folder, temporary):
            shutil.rmtree(each, ignore_errors=True)
        temporary.mkdir(parents=True)
        reader, writer = FORK.Pipe(duplex=False)
        options = ("-q", "-x", "-n", "0", "-m", "not system", "-p", "no:cacheprovider", f"--basetemp={folder}")
        process = FORK.Process(target=self._run_pytest, args=([*options, *arguments], temporary, writer))
        process.start()
        writer.close()
        return reader, process

    def _run_pytest(self, arguments: Sequence[str], temporary: Path, connection: Connection) -> None:
        os.setpgid(0, 0)
        end_with_parent()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(null, descriptor)
        os.chdir(self.path)
        # Before the installed packages, which are those of the checkout that was copied.
        sys.path[:0] = [str(self.path), str(self.path / "engine")]
        os.environ |= {
            "PYTHONPATH": os.pathsep.join(sys.path[:2]),
            "TMPDIR": str(temporary),
            "PYTEST_XDIST_WORKER": "gw0",  # shares services, and Prefect's home, with other sessions
        }
        tempfile.tempdir = None
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False
        ended = pytest.main([*arguments], plugins=[_Reporter(connection)])
        connection.send(("ended", ended in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}))
        os._exit(0)  # what the parent registered to be run at its end is not the child's


class _Reporter:
    """Sends what begins and what fails."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._connection.send(("began", nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._connection.send(("failed", report.nodeid))


def _follow(reader: Connection, within_s: float) -> Session:
    test, began_s = None, time.monotonic()
    deadline_s = began_s + within_s
    passed: bool | None = False  # also if the process dies
    with suppress(EOFError):
        while True:
            if not reader.poll(max(0, deadline_s - time.monotonic())):
                passed = None
                break
            event, value = reader.recv()
            if event == "ended":
                passed = value
                break
            if event == "began":
                began_s = time.monotonic()
            test = value
    return Session(passed, test, time.monotonic() - began_s)


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def import_packages() -> None:
    """Import the packages that the code imports, and none of the code."""
    with ProcessPoolExecutor(1, mp_context=FORK) as once:
        for name in once.submit(_imported_packages).result():
            with suppress(Exception):  # can only be imported in another way
                import_module(name)


def _imported_packages() -> list[str]:
    for file in tracked_files(*ROOMS):
        if file.endswith(".py") and not file.endswith("__main__.py"):
            with suppress(ImportError):  # needs vLLM
                import_module(".".join(Path(file.removeprefix("engine/")).with_suffix("").parts))
    return [name for name, module in sys.modules.items() if "site-packages" in (getattr(module, "__file__", "") or "")]
