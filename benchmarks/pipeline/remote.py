"""A way in a process of its own: `python -m benchmarks.pipeline.remote CONNECTION_FD`.

vLLM reads its environment when it is imported, and a process's cores decide how many threads its
libraries start: each way gets a fresh one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from benchmarks.pipeline.cores import bind
from benchmarks.pipeline.timing import Timing
from infra.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.pipeline.timing import Way

_END_TIMEOUT_S = 30


class Remote:
    """Runs a way elsewhere; it is a way itself."""

    def __init__(self, way: Way, *, environment: Mapping[str, str], cores: frozenset[int], log_path: Path) -> None:
        """Keep the way; nothing is started yet.

        Args:
            way: Is pickled into the process.
            environment: The process's.
            cores: Where the process runs; empty is anywhere.
            log_path: Where its output goes.
        """
        self._way = way
        self._environment = dict(environment)
        self._cores = cores
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def load(self) -> None:
        """Start the process, and load the way in it.

        Raises:
            ModelError: It does not load.
        """
        self._connection, theirs = Pipe()
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-P", "-m", "benchmarks.pipeline.remote", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                pass_fds=(theirs.fileno(),),
            )
        theirs.close()
        self._ask((self._way, self._cores))

    def run(self, number: int) -> Timing:
        """Have one pass made.

        Raises:
            ModelError: It failed.
        """
        timing = self._ask(number)
        assert isinstance(timing, Timing)
        return timing

    def close(self) -> None:
        """End the process."""
        if self._process is None or self._connection is None:
            return
        self._connection.close()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = self._connection = None

    def _ask(self, message: object) -> object:
        assert self._connection is not None
        try:
            self._connection.send(message)
            answer = self._connection.recv()
        except (EOFError, OSError):
            answer = ModelError("its process died")
        if isinstance(answer, ModelError):
            raise ModelError(f"{type(self._way).__name__} failed: {answer}; see {self._log_path}.")
        return answer


def main() -> None:
    """Serve one parent."""
    connection = Connection(int(sys.argv[1]))
    way, cores = connection.recv()
    bind(os.getpid(), cores)
    try:
        way.load()
        connection.send(None)
        while True:
            connection.send(way.run(connection.recv()))
    except EOFError:
        way.close()
    except BaseException as error:
        traceback.print_exc()
        connection.send(ModelError(f"{type(error).__name__}: {error}"))
        raise


if __name__ == "__main__":
    main()
