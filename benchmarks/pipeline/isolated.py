"""A contender in a process of its own: `python -m benchmarks.pipeline.isolated CONNECTION_FD`.

vLLM reads its environment when it is imported, and libraries size their thread pools by the cores of their process:
each contender gets a fresh process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from benchmarks.cores import bind
from benchmarks.pipeline.contender import Timing
from reelabel_engine.environment import find_python
from reelabel_engine.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.pipeline.contender import Contender

_END_TIMEOUT_S = 30


class Isolated:
    """A contender that runs another one in a subprocess."""

    def __init__(
        self, contender: Contender, *, environment: Mapping[str, str], cores: frozenset[int], log_path: Path
    ) -> None:
        """Prepare the subprocess; `load` starts it.

        Args:
            contender: Pickled and sent to the subprocess.
            environment: Environment of the subprocess.
            cores: Cores of the subprocess; empty for any.
            log_path: File for its output.
        """
        self._contender = contender
        self._environment = dict(environment)
        self._cores = cores
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def load(self) -> None:
        """Start the process and load the contender in it.

        Raises:
            ModelError: The contender does not load.
        """
        self._connection, theirs = Pipe()
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [find_python().path, "-P", "-m", "benchmarks.pipeline.isolated", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                pass_fds=(theirs.fileno(),),
            )
        theirs.close()
        self._ask((self._contender, self._cores))

    def run(self, number: int) -> Timing:
        """Run one pass.

        Raises:
            ModelError: The pass failed.
        """
        timing = self._ask(number)
        assert isinstance(timing, Timing)
        return timing

    def close(self) -> None:
        """Stop the process."""
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
            raise ModelError(f"{type(self._contender).__name__} failed: {answer}; see {self._log_path}.")
        return answer


def main() -> None:
    """Serve one parent process."""
    connection = Connection(int(sys.argv[1]))
    contender, cores = connection.recv()
    bind(os.getpid(), cores)
    try:
        contender.load()
        connection.send(None)
        while True:
            connection.send(contender.run(connection.recv()))
    except EOFError:
        contender.close()
    except BaseException as error:
        traceback.print_exc()
        connection.send(ModelError(f"{type(error).__name__}: {error}"))
        raise


if __name__ == "__main__":
    main()
