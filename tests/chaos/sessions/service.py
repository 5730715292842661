"""`reelabel serve` as a process, started again when it dies, as a supervisor would."""

import os
import signal
import sys
import threading
from contextlib import suppress

import httpx
import psutil

from infra.processes import free_port
from tests.chaos.world import ROOT, kill

_WATCH_S = 0.25
_STOP_S = 30
_SETTINGS = {"REELABEL_SERVE_LOAD": '["live"]', "REELABEL_LIVE_RESUME_S": "6"}
_MODULES = {"live": "flows.cli.main", "live-stub": "tests.chaos.sessions.scripted"}
ENGINES = tuple(_MODULES)


class Service:
    """The service of one world.

    Attributes:
        port: Where it answers, after each start.
        starts: How often it was started.
        echoes: Whether an answer in words repeats the question, as the stub's do.
    """

    def __init__(self, world, folder, *, engine):
        """Start it."""
        self.port = free_port()
        self.echoes = engine == "live-stub"
        self.starts = 0
        self._world, self._log = world, (folder / "service.log").open("ab")
        self._command = [sys.executable, "-m", _MODULES[engine], "serve", "--port", str(self.port)]
        self._left = []
        self._ended = threading.Event()
        self._start()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    @property
    def pid(self):
        """The id of its process, which may have ended."""
        return self._process.pid

    def is_ready(self):
        """Return whether it answers."""
        with suppress(httpx.HTTPError):
            return httpx.get(f"http://127.0.0.1:{self.port}/health", timeout=2).is_success
        return False

    def kill(self):
        """Kill it, and remember its children, which should end by themselves."""
        with suppress(psutil.Error):
            self._left += psutil.Process(self.pid).children(recursive=True)
        return kill(self.pid)

    def end(self):
        """Have it end in order; it is started again."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
            return True
        return False

    def left_behind(self, timeout_s):
        """Wait for the children of killed processes; return those that are still there."""
        gone, alive = psutil.wait_procs(self._left, timeout=timeout_s)
        self._left = [each for each in self._left if each not in gone]
        return alive

    def close(self):
        """End it for good."""
        self._ended.set()
        self._watcher.join()
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        self._process.wait(_STOP_S)
        self._log.close()

    def _start(self):
        self.starts += 1
        self._process = self._world.start(self._command, self._log, **_SETTINGS, PYTHONPATH=str(ROOT))

    def _watch(self):
        while not self._ended.wait(_WATCH_S):
            if self._process.poll() is not None:
                self._start()
