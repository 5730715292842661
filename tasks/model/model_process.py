"""A model in a child process that loads once and answers requests: what the engine and the towers share.

The process is ended with all its children, its death or silence fails what is pending, and its temporary files go
with it. What is asked and answered is left to the subclasses.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from concurrent.futures import Future, wait
from contextvars import ContextVar
from multiprocessing import Pipe
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from infra.errors import EngineClosedError, ModelError
from infra.log_context import IS_OUTAGE
from reelabel.disk import full_disk, temporary_root
from reelabel.errors import DiskFullError, ReelabelError
from reelabel.temporary import temporary_folder
from reelabel.waiting import LOOK_S, go_on
from tasks.model.engine.log import engine_log
from tasks.model.protocol import EngineFailure, Lifetime
from tasks.model.written_folders import written_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import Self


class Loadable(Protocol):
    """What to load."""

    @property
    def model(self) -> str:
        """Folder or hub name."""
        ...


class Startable(Protocol):
    """What starts one process or several."""

    def start(self) -> None:
        """Start; return at once."""
        ...


Config = TypeVar("Config", bound=Loadable)
Info = TypeVar("Info")
Answered = TypeVar("Answered")
_LOG = logging.getLogger("reelabel")
_END_TIMEOUT_S = 10


class LostError(Exception):
    """The process was lost; the message says why.

    Attributes:
        full: The error to raise instead if the cause is a full disk.
    """

    def __init__(self, reason: str, full: DiskFullError | None = None) -> None:
        """Store the reason."""
        super().__init__(reason)
        self.full = full


class Incarnation(ABC, Generic[Info]):
    """One run of the process, from its start until it is lost.

    Attributes:
        info: Done once the model is loaded.
        last_reply_s: When it last replied, or was last asked while idle.
        folders: The folders that it writes to.
    """

    def __init__(
        self, command: Sequence[str], *, environment: dict[str, str], log_path: Path, log_as_json: bool, config: object
    ) -> None:
        """Start the process.

        Args:
            command: Starts it; the descriptors of its connection and its lifeline are appended.
            environment: Its environment variables.
            log_path: File that receives its output.
            log_as_json: Write each line of it as JSON.
            config: Its first message.
        """
        self._temporary = contextlib.ExitStack()
        environment |= _temporary_places(self._temporary.enter_context(temporary_folder("engine")))
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
        self.began_s = self.last_reply_s = time.monotonic()
        self.info: Future[Info] = Future()
        self._lock = threading.Lock()
        self._lost: LostError | None = None
        self._outbox: SimpleQueue[Any] = SimpleQueue()
        self._outbox.put(config)
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._send_messages, self._receive_messages)
        ]
        for thread in self._threads:
            thread.start()

    def touch(self) -> None:
        """Note that it has just replied, or has just been asked while idle."""
        self.last_reply_s = time.monotonic()

    @abstractmethod
    def _write(self, message: Any) -> None:  # noqa: ANN401 - whatever the subclass puts into the outbox
        """Send a message; may block, and raise OSError once the process is gone."""

    @abstractmethod
    def _read(self) -> EngineFailure | None:
        """Receive a message and hand on what it answers; return why the process ends, if that is what it says."""

    @abstractmethod
    def _abandon(self) -> list[Any]:
        """Forget the pending requests; return their futures, or what takes an exception as one. The lock is held."""

    def _send_messages(self) -> None:
        # In its own thread: a hung process stops reading, and the caller must still notice the timeout.
        with contextlib.suppress(OSError):
            while (message := self._outbox.get()) is not None:
                self._write(message)

    def _receive_messages(self) -> None:
        reason, full = "its process died", None
        try:
            while (failure := self._read()) is None:
                pass
            reason, full = failure.message, DiskFullError(failure.message) if failure.is_disk_full else None
        except (EOFError, OSError):
            pass
        except (ValueError, KeyError, TypeError, IndexError):
            reason = "its process sent something else than an answer"
        self._fail(reason, full or full_disk(self.folders))

    def _fail(self, reason: str, full: DiskFullError | None = None) -> None:
        with self._lock:
            self._lost = lost = self._lost or LostError(reason, full)
            pending = self._abandon()
            if not self.info.done():
                self.info.set_exception(lost)
        for answered in pending:
            answered.set_exception(lost)

    def end(self, reason: str) -> None:
        """End the process and all its children, and fail the pending requests; idempotent."""
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


Life = TypeVar("Life", bound=Incarnation[Any])
# Those that were started ahead and that nobody has opened yet, by configuration.
_AHEAD: dict[object, ModelProcess[Any, Any]] = {}
_is_ahead: ContextVar[bool] = ContextVar("is_ahead", default=False)


class ModelProcess(Lifetime, Generic[Config, Life]):
    """A model in its own process; a context manager that shuts it down.

    Attributes:
        closed: What to say of requests to a process that was closed.
        default_command: Starts the process.
        starts: Number of times it was started.
    """

    closed: ClassVar[str]
    default_command: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        config: Config,
        *,
        log_path: Path,
        log_as_json: bool = False,
        start_timeout_s: float,
        answer_timeout_s: float = 600.0,
        command: Sequence[str] = (),
    ) -> None:
        """Store the configuration; nothing is started yet.

        Args:
            config: What to load.
            log_path: File that receives the process's output.
            log_as_json: Write each line of it as JSON.
            start_timeout_s: Seconds allowed for loading.
            answer_timeout_s: Seconds without a reply, while requests are pending, after which it counts as hung.
            command: Starts the process in place of `default_command`; the descriptors of its connection and its
                lifeline are appended.
        """
        self.starts = 0
        self._config, self._log_path, self._log_as_json = config, log_path, log_as_json
        self._command = tuple(command) or self.default_command
        self._start_timeout_s, self._answer_timeout_s = start_timeout_s, answer_timeout_s
        self._lock = threading.Lock()
        self._life: Life | None = None
        self._is_closed = False
        self._losses = 0

    @classmethod
    def of(cls, config: Config, **options: Any) -> Self:  # noqa: ANN401 - those of `__init__`
        """Return the process of a configuration: the one that was started ahead, if there is one, or a new one."""
        started = _AHEAD.pop(config, None)
        if isinstance(started, cls):
            return started
        process = cls(config, **options)
        if _is_ahead.get():
            _AHEAD[config] = process
        else:
            _end_ahead()  # it was started for another model, or for other questions, and takes memory
        return process

    @property
    def pid(self) -> int | None:
        """The child's process id; None before it has started and after it has ended."""
        life = self._life
        return life.process.pid if life else None

    @abstractmethod
    def _begin(self) -> Life:
        """Start the process."""

    def start(self) -> None:
        """Start loading the model; do nothing if it is already started.

        Raises:
            ConfigurationError: The packages that it needs are not installed.
            EngineClosedError: It was closed.
        """
        self._living()

    def _living(self) -> Life:
        """Return the process that runs; start one if none does."""
        with self._lock:
            if self._is_closed:
                raise EngineClosedError(self.closed)
            if self._life is None:
                self._life = self._begin()
                self.starts += 1
            return self._life

    def _ready(self, life: Life) -> Any:  # noqa: ANN401 - Info of that Life
        """Wait until a process has loaded the model, and return what it reports."""
        try:
            return life.info.result(self._start_timeout_s)
        except TimeoutError:
            full = full_disk(life.folders)
            fault = (
                f"Model {self._config.model} did not load within {self._start_timeout_s:g} s; "
                f"raise model.start_timeout_s, or check the log {self._log_path}."
            )
        except LostError as error:
            if self._is_closed:
                raise EngineClosedError(self.closed) from None
            full = error.full
            fault = f"Cannot load model {self._config.model}: {str(error).rstrip('.')}; see the log {self._log_path}."
        self._end(life, "the model did not load")
        raise full or ModelError(fault)

    def _wait(self, life: Life, answered: Future[Answered]) -> Answered:
        """Wait for an answer.

        Raises:
            LostError: The process died, or was silent for too long.
            AbandonedError: Nobody waits for it any more.
        """
        while not answered.done():
            go_on()
            silent_s = time.monotonic() - life.last_reply_s
            if silent_s >= self._answer_timeout_s:
                raise LostError(f"no answer within {self._answer_timeout_s:g} s")
            wait([answered], min(LOOK_S, self._answer_timeout_s - silent_s))
        return answered.result()

    def _lose(self, life: Life, error: LostError) -> None:
        """End a process that was lost.

        Raises:
            DiskFullError: A full disk is the cause.
            EngineClosedError: It was closed meanwhile.
        """
        with self._lock:
            is_news = self._life is life and not self._is_closed
        self._end(life, str(error))
        if self._is_closed:
            raise EngineClosedError(self.closed) from None
        if is_news:
            self._losses += 1
            _LOG.warning(
                "Model %s was lost: %s; see the log %s (%d so far).",
                *(self._config.model, error, self._log_path, self._losses),
                extra={IS_OUTAGE: True},
            )
        if error.full:
            raise error.full from None

    def _end(self, life: Life, reason: str) -> None:
        with self._lock:
            if self._life is life:
                self._life = None
        life.end(reason)

    def close(self) -> None:
        """End the process and all its children for good; idempotent."""
        with self._lock:
            self._is_closed = True
            life = self._life
        if life is not None:
            self._end(life, "it was closed")


@contextlib.contextmanager
def started_ahead(open_model: Callable[[], Startable | None]) -> Iterator[None]:
    """Start a model that the body is going to open: it then gets these processes. What it does not open ends with it.

    Args:
        open_model: Opens the model as the body will, without starting it; None starts nothing. If it cannot be opened
            or started, the body will say why.
    """
    try:
        with contextlib.suppress(ReelabelError):
            token = _is_ahead.set(True)
            try:
                opened = open_model()
            finally:
                _is_ahead.reset(token)
            if opened:
                opened.start()
        yield
    finally:
        _end_ahead()


def _end_ahead() -> None:
    while _AHEAD:
        _AHEAD.popitem()[1].close()


def _temporary_places(folder: Path) -> dict[str, str]:
    """Have a process leave its files, such as vLLM's `vllm_dist_*`, in a folder that is removed with it."""
    places = {"TMPDIR": str(folder)}
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:  # compiled functions are for later processes, too
        places["TORCHINDUCTOR_CACHE_DIR"] = str(temporary_root() / f"torchinductor_{os.getuid()}")
    return places
