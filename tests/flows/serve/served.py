"""`reelabel serve` as a process of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

_START_S = 400  # on a busy machine, where an encoder and an engine load


class Served:
    """A running service.

    Attributes:
        url: Where it answers.
        process: Its process.
        lines: Lines that it has printed.
    """

    def __init__(self, process):
        self.process = process
        self.lines = []
        self._is_ready = threading.Event()
        self.url = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._is_ready.wait(_START_S), self.lines
        assert self.url, self.lines

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if found := re.search(r"at (http://\S+);", line):
                self.url = found[1]
                self._is_ready.set()
        self._is_ready.set()

    def end(self, number):
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(60)
        self._reader.join(10)
        return code


def serving(environment):
    """Serve on a free port; end it at the end, if it has not ended."""
    return _running([sys.executable, "-m", "flows.cli", "serve", "--port", "0"], environment)


def serving_slowly(**settings):
    """Serve `tests.flows.serve.slow_service`."""
    options = json.dumps({"port": 0} | settings)
    return _running([sys.executable, "-m", "tests.flows.serve.slow_service", options], os.environ)


@contextmanager
def _running(command, environment):
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield Served(process)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
