"""A model in a child process that loads it once and answers requests: an engine, or an image-text encoder."""

from __future__ import annotations

import contextlib
import logging
import threading
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from infra.errors import EngineClosedError, EngineLostError
from infra.logs import IS_OUTAGE
from reelabel.disk import full_disk
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import EncoderConfig, EngineConfig, EngineTimes, LoadEncoder, LoadEngine
from tasks.model.pool import Lifetime
from tasks.model.running_process import LostError, RunningProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from reelabel_engine.environment import EnginePython
    from reelabel_engine.protocol import Request

Config = TypeVar("Config", EngineConfig, EncoderConfig)
_LOG = logging.getLogger("reelabel")
START_TIMEOUT_S = 3600.0  # for loading, which a network disk may make slow


class ModelProcess(Lifetime, Generic[Config]):
    """A model in its own process; a context manager that shuts it down."""

    noun: ClassVar[str]  # in messages, such as "The engine"
    default_command: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        config: Config,
        *,
        log_path: Path,
        log_as_json: bool = False,
        start_timeout_s: float = START_TIMEOUT_S,
        answer_timeout_s: float = 600.0,
        python: Path | None = None,
        command: Sequence[str] = (),
    ) -> None:
        """Store the configuration; nothing is started yet.

        Without a reply for `answer_timeout_s`, while requests are pending, the process counts as hung. `python` is as
        for `find_python`. `command` starts the process in place of the engine's own; a descriptor is appended.
        """
        self.starts = 0
        self._config: Config = config
        self._log_path, self._log_as_json = log_path, log_as_json
        self._python, self._command = python, tuple(command) or self.default_command
        self._start_timeout_s, self._answer_timeout_s = start_timeout_s, answer_timeout_s
        self._lock = threading.Lock()
        self._running: RunningProcess | None = None
        self._is_closed = False
        self._losses = 0

    @property
    def pid(self) -> int | None:
        """The child's process id; None before it has started and after it has ended."""
        running = self._running
        return running.process.pid if running else None

    @abstractmethod
    def _begin(self) -> RunningProcess: ...

    def _start(
        self, python: EnginePython, load: LoadEngine | LoadEncoder, environment: dict[str, str]
    ) -> RunningProcess:
        return RunningProcess.start(
            self._command or python.command,
            load,
            environment=environment,
            log_path=self._log_path,
            log_as_json=self._log_as_json,
            is_restart=bool(self.starts),
            **self._process_options,
        )

    @property
    def _process_options(self) -> dict[str, Any]:
        return {"note_times": self._note_times, "silence_s": self._answer_timeout_s}

    def _note_times(self, times: EngineTimes) -> None:
        """Note how the process spent its time."""

    def start(self) -> None:
        """Start loading the model; do nothing if it is already started.

        Raises:
            ConfigurationError: The packages that it needs are not installed.
            EngineClosedError: It was closed.
        """
        self._ensure_running()

    def _ensure_running(self) -> RunningProcess:
        with self._lock:
            if self._is_closed:
                raise self._closed_error()
            if self._running is None:
                self._running = self._begin()
                self.starts += 1
            return self._running

    def _wait_loaded(self, running: RunningProcess) -> Any:  # noqa: ANN401 - of what it loads
        try:
            return running.info.result(self._start_timeout_s)
        except TimeoutError:
            full = full_disk(running.folders)
            message = (
                f"Model {self._config.name} did not load within {self._start_timeout_s:g} s; "
                f"check the log {self._log_path}, and copy the model to a local disk if its folder is slow to read."
            )
        except LostError as error:
            if self._is_closed:
                raise self._closed_error() from None
            full = error.full
            message = f"Cannot load model {self._config.name}: {str(error).rstrip('.')}; see the log {self._log_path}."
        self._end(running, "the model did not load")
        raise full or ModelError(message)

    def ask(self, build: Callable[[int], Request], *, count: int = 1) -> list[Any]:
        """Send a request once the model is loaded; return its replies, in the order of their indices.

        Raises:
            EngineLostError: The process died, or hung and was killed; ask again.
            DiskFullError: The process died because a disk is full, which is no fault of a question.
            ModelError: It cannot be loaded.
            EngineClosedError: It was closed.
            AbandonedError: Nobody waits for the replies any more; the process stops working on them.
        """
        running = self._ensure_running()
        self._wait_loaded(running)
        with self.ending_lost(running):
            replies = dict(running.replies(running.send(build, count=count)))
        return [replies[index] for index in range(count)]

    @contextlib.contextmanager
    def ending_lost(self, running: RunningProcess) -> Iterator[None]:
        """End a process whose loss is noticed in the body of the `with` statement.

        Raises:
            EngineLostError: It was.
            DiskFullError: It was, by a full disk.
            EngineClosedError: It was closed meanwhile.
        """
        try:
            yield
        except LostError as error:
            self._end_lost(running, error)
            lost = f"{self.noun} failed: {str(error).rstrip('.')}; see the log {self._log_path}."
            raise EngineLostError(lost) from None

    def _end_lost(self, running: RunningProcess, error: LostError) -> None:
        with self._lock:
            is_first = self._running is running and not self._is_closed
        self._end(running, str(error))
        if self._is_closed:
            raise self._closed_error() from None
        if is_first:
            self._losses += 1
            _LOG.warning(
                "Model %s was lost: %s; see the log %s (%d so far).",
                *(self._config.name, error, self._log_path, self._losses),
                extra={IS_OUTAGE: True},
            )
        if error.full:
            raise error.full from None

    def _closed_error(self) -> EngineClosedError:
        return EngineClosedError(f"{self.noun} was closed; the run is ending.")

    def _end(self, running: RunningProcess, reason: str) -> None:
        with self._lock:
            if self._running is running:
                self._running = None
        running.end(reason)

    def close(self) -> None:
        """End the process and all its children for good; idempotent."""
        with self._lock:
            self._is_closed = True
            running = self._running
        if running is not None:
            self._end(running, "it was closed")
