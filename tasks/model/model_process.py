"""A model in a child process that loads once and answers requests: an engine, or an image-text encoder.

The process is ended with all its children, its death or silence fails what is pending, and its temporary files go
with it. Which requests there are is left to the subclasses; `reelabel_engine.protocol` has all messages.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from abc import abstractmethod
from concurrent.futures import Future
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_readable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from infra.errors import EngineClosedError, EngineLostError
from infra.logs import IS_OUTAGE
from reelabel.disk import disk_errors, full_disk, temporary_root
from reelabel.errors import DiskFullError
from reelabel.waiting import LOOK_S, go_on
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import (
    Cancel,
    EncoderLoaded,
    EngineFailure,
    EngineLoaded,
    EngineTimes,
    LiveText,
    StepReplies,
    Vectors,
    decode_reply,
    encode,
)
from reelabel_engine.written_folders import written_folders
from tasks.model.engine.keeper import AdoptedProcess
from tasks.model.engine.log import engine_log
from tasks.model.lifetime import Lifetime

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from typing import Self

    from reelabel_engine.environment import EnginePython
    from reelabel_engine.protocol import LoadEncoder, LoadEngine, Reply, Request
    from tasks.model.engine.keeper import KeptEngine


class Loadable(Protocol):
    """What to load."""

    @property
    def model(self) -> str: ...


Config = TypeVar("Config", bound=Loadable)
_LOG = logging.getLogger("reelabel")
_END_TIMEOUT_S = 10
_LEAST_WAIT_S = 0.01


class LostError(Exception):
    """The process was lost; the message says why.

    Attributes:
        full: The error to raise instead if the cause is a full disk.
    """

    def __init__(self, reason: str, full: DiskFullError | None = None) -> None:
        super().__init__(reason)
        self.full = full


class PendingRequest:
    """A request that has not ended.

    Attributes:
        number: Unique within one life of the process.
        count: How many replies end it; pieces of a text do not count.
        left: How many of these have not come.
        replies: Its replies as they come, each with its place in a batch; or the error in place of more, or None.
    """

    def __init__(self, number: int, count: int) -> None:
        self.number, self.count, self.left = number, count, count
        self.replies: SimpleQueue[tuple[int, Any] | BaseException | None] = SimpleQueue()


class Life:
    """One run of the process, from its start until it is lost.

    Attributes:
        info: `EngineInfo` or `EncoderInfo`, once the model is loaded.
        lost: Why it was lost; None while it runs.
        last_reply_s: When it last replied, or was last asked while idle.
        folders: The folders that it writes to.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes] | AdoptedProcess,
        connection: Connection,
        lifeline: int,
        *,
        temporary: Path,
        folders: list[Path],
        note_times: Callable[[EngineTimes], None],
        is_restart: bool = False,
        first_number: int = 0,
    ) -> None:
        self.process, self.folders = process, folders
        self._connection, self._temporary = connection, temporary
        self._lifeline: int | None = lifeline
        self.began_s = self.last_reply_s = time.monotonic()
        self.info: Future[Any] = Future()
        self.lost: LostError | None = None
        self._note_times, self._is_restart = note_times, is_restart
        self._lock = threading.Lock()
        self._numbers = count(first_number)
        self._pending: dict[int, PendingRequest] = {}
        self._outbox: SimpleQueue[Request | None] = SimpleQueue()
        self._stop = os.eventfd(0)
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._send_messages, self._receive_messages)
        ]
        for thread in self._threads:
            thread.start()

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        load: LoadEngine | LoadEncoder,
        *,
        environment: dict[str, str],
        log_path: Path,
        log_as_json: bool,
        note_times: Callable[[EngineTimes], None],
        is_restart: bool,
    ) -> Self:
        with disk_errors(temporary_root()):
            temporary = Path(tempfile.mkdtemp(prefix="reelabel-engine-"))
        lock = os.open(temporary, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_SH)  # inherited: what is not locked by a living process is removed by later runs
        environment = environment | _temporary_places(temporary)
        connection, theirs = Pipe()
        lifeline_read, lifeline = os.pipe()
        with engine_log(log_path, as_json=log_as_json) as log:
            process = subprocess.Popen(  # noqa: S603 - our own command
                [*command, str(theirs.fileno()), str(lifeline_read)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=(theirs.fileno(), lifeline_read, lock),
                start_new_session=True,
            )
        theirs.close()
        for descriptor in (lifeline_read, lock):
            os.close(descriptor)
        folders = [log_path.parent, *written_folders(environment)]
        life = cls(
            *(process, connection, lifeline),
            temporary=temporary,
            folders=folders,
            note_times=note_times,
            is_restart=is_restart,
        )
        life.post(load)
        return life

    @classmethod
    def adopt(cls, kept: KeptEngine, *, info: Any, note_times: Callable[[EngineTimes], None]) -> Self:  # noqa: ANN401 - as `info`
        facts = kept.facts
        life = cls(
            *(AdoptedProcess(facts["pid"]), Connection(kept.connection), kept.lifeline),
            temporary=Path(facts["temporary"]),
            folders=[Path(folder) for folder in facts["folders"]],
            note_times=note_times,
            first_number=facts["next_number"],
        )
        life.info.set_result(info)
        return life

    def release(self, keep: Callable[[int, int, dict[str, Any]], None]) -> bool:
        """Hand over the process, if it is loaded and idle, instead of ending it.

        Args:
            keep: Takes the descriptors of the connection and the lifeline, and what `adopt` needs.
        """
        with self._lock:
            is_idle = not (self.lost or self._pending or not self.info.done() or self.info.exception())
            if not is_idle:
                return False
            self.lost = LostError("it was kept for the next run")
        os.eventfd_write(self._stop, 1)
        self._outbox.put(None)
        for thread in self._threads:
            thread.join(_END_TIMEOUT_S)
        if any(thread.is_alive() for thread in self._threads):  # it reads nothing any more
            return False
        assert self._lifeline is not None
        facts = {
            "pid": self.process.pid,
            "temporary": str(self._temporary),
            "folders": list(map(str, self.folders)),
            "next_number": next(self._numbers),
        }
        try:
            keep(self._connection.fileno(), self._lifeline, facts)
        except OSError as error:
            _LOG.warning("The engine cannot be kept for the next run: %s.", error)
            return False
        self.process.returncode = 0  # nobody here waits for it
        self._close()
        return True

    def send(self, build: Callable[[int], Request], *, count: int = 1) -> PendingRequest:
        """Queue a request, which `build` makes from its number, and which so many replies end.

        If it cannot be encoded, the error is its reply.

        Raises:
            LostError: The process was lost.
        """
        with self._lock:
            if self.lost:
                raise self.lost
            if not self._pending:
                self.last_reply_s = time.monotonic()
            request = PendingRequest(next(self._numbers), count)
            self._pending[request.number] = request
            self._outbox.put(build(request.number))
        return request

    def post(self, message: Request) -> None:
        """Queue a message that has no reply."""
        self._outbox.put(message)

    def cancel(self, request: PendingRequest) -> None:
        """Have a request ended, if it has not; it gets no more replies."""
        with self._lock:
            if self._pending.pop(request.number, None) and not self.lost:
                self.post(Cancel(number=request.number))

    def replies(self, request: PendingRequest, *, silence_s: float) -> Generator[tuple[int, Any], None, None]:
        """Yield the replies to a request, with their places; it is cancelled if that ends before it does.

        Raises:
            LostError: The process died, or has replied to nothing for `silence_s`.
            AbandonedError: Nobody waits for the replies any more.
        """
        left = request.count
        try:
            while left:
                silent_s = time.monotonic() - self.last_reply_s
                try:
                    reply = request.replies.get(timeout=min(LOOK_S, max(_LEAST_WAIT_S, silence_s - silent_s)))
                except Empty:
                    go_on()
                    if silent_s >= silence_s and self.info.done():
                        raise LostError(f"no answer within {silence_s:g} s") from None
                    continue
                if reply is None:
                    return
                if isinstance(reply, BaseException):
                    raise reply
                left -= not isinstance(reply[1], LiveText)
                yield reply
        finally:
            self.cancel(request)

    def _send_messages(self) -> None:
        # In its own thread: a hung process stops reading, and the caller must still notice the timeout.
        with contextlib.suppress(OSError):
            while (message := self._outbox.get()) is not None:
                try:
                    data = encode(message)
                except Exception as error:  # noqa: BLE001 - it is of one request, whatever it is
                    self._refuse(message, error)
                else:
                    self._connection.send_bytes(data)

    def _refuse(self, message: Request, error: Exception) -> None:
        with self._lock:
            request = self._pending.pop(getattr(message, "number", -1), None)
        if request:
            request.replies.put(error)

    def _receive_messages(self) -> None:
        reason, full = "its process died", None
        try:
            while self._connection in wait_readable([self._connection, self._stop]):
                if isinstance(message := decode_reply(self._connection.recv_bytes()), EngineFailure):
                    break
                self._handle(message)
            else:
                return  # it is kept
            reason, full = message.message, DiskFullError(message.message) if message.is_disk_full else None
        except (EOFError, OSError):
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must learn of it
            reason = f"its process sent an invalid message: {error}"
        self._fail(reason, full or full_disk(self.folders))

    def _handle(self, message: Reply) -> None:
        self.last_reply_s = time.monotonic()
        match message:
            case EngineLoaded() | EncoderLoaded():
                if self._is_restart:
                    self._note_times(EngineTimes(restart_ms=(self.last_reply_s - self.began_s) * 1e3))
                with self._lock:
                    if not self.lost:
                        self.info.set_result(message.info)
            case Vectors():
                self._deliver(message.number, 0, message)
            case StepReplies():
                self._note_times(message.times)
                for ref, reply in message.replies:
                    self._deliver(ref.number, ref.place, reply)
            case _:
                raise TypeError(f"{type(message).__name__} is no reply to a request")

    def _deliver(self, number: int, place: int, reply: Any) -> None:  # noqa: ANN401 - of the kind that the request has
        with self._lock:
            request = self._pending.get(number)
            if request is None:  # it was cancelled
                return
            if not isinstance(reply, LiveText):
                request.left -= 1
                if not request.left:
                    del self._pending[number]
            request.replies.put((place, reply))

    def _fail(self, reason: str, full: DiskFullError | None = None) -> None:
        with self._lock:
            self.lost = lost = self.lost or LostError(reason, full)
            pending, self._pending = self._pending, {}
            if not self.info.done():
                self.info.set_exception(lost)
        for request in pending.values():
            request.replies.put(lost)

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
        self._close()
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _close(self) -> None:
        with self._lock:
            if self._lifeline is not None:
                os.close(self._lifeline)
                os.close(self._stop)
                self._connection.close()
                self._lifeline = None


class ModelProcess(Lifetime, Generic[Config]):
    """A model in its own process; a context manager that shuts it down.

    Attributes:
        called: What it is, in sentences.
        default_command: Starts the process in place of the engine's own.
        starts: Number of times it was started.
    """

    called: ClassVar[str]
    default_command: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        config: Config,
        *,
        log_path: Path,
        log_as_json: bool = False,
        start_timeout_s: float,
        answer_timeout_s: float = 600.0,
        python: Path | None = None,
        command: Sequence[str] = (),
    ) -> None:
        """Store the configuration; nothing is started yet.

        Args:
            config: What to load.
            log_path: File that receives the process's output.
            log_as_json: Write each line of it as JSON.
            start_timeout_s: Seconds allowed for loading.
            answer_timeout_s: Seconds without a reply, while requests are pending, after which it counts as hung.
            python: As for `find_python`.
            command: Starts the process in place of the engine's own; the descriptors of its connection and its
                lifeline are appended.
        """
        self.starts = 0
        self._config, self._log_path, self._log_as_json = config, log_path, log_as_json
        self._python, self._command = python, tuple(command) or self.default_command
        self._start_timeout_s, self._answer_timeout_s = start_timeout_s, answer_timeout_s
        self._lock = threading.Lock()
        self._life: Life | None = None
        self._is_closed = False
        self._losses = 0

    @property
    def pid(self) -> int | None:
        """The child's process id; None before it has started and after it has ended."""
        life = self._life
        return life.process.pid if life else None

    @abstractmethod
    def _begin(self) -> Life: ...

    def _start(self, python: EnginePython, load: LoadEngine | LoadEncoder, environment: dict[str, str]) -> Life:
        return Life.start(
            self._command or python.command,
            load,
            environment=environment,
            log_path=self._log_path,
            log_as_json=self._log_as_json,
            note_times=self._note_times,
            is_restart=bool(self.starts),
        )

    def _note_times(self, times: EngineTimes) -> None:
        """Note how the process spent its time."""

    def start(self) -> None:
        """Start loading the model; do nothing if it is already started.

        Raises:
            ConfigurationError: The packages that it needs are not installed.
            EngineClosedError: It was closed.
        """
        self._living()

    def _living(self) -> Life:
        with self._lock:
            if self._is_closed:
                raise self._closed_error()
            if self._life is None:
                self._life = self._begin()
                self.starts += 1
            return self._life

    def _ready(self, life: Life) -> Any:  # noqa: ANN401 - of what it loads
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
                raise self._closed_error() from None
            full = error.full
            fault = f"Cannot load model {self._config.model}: {str(error).rstrip('.')}; see the log {self._log_path}."
        self._end(life, "the model did not load")
        raise full or ModelError(fault)

    def replies(self, life: Life, request: PendingRequest) -> Generator[tuple[int, Any], None, None]:
        return life.replies(request, silence_s=self._answer_timeout_s)

    @contextlib.contextmanager
    def losing(self, life: Life) -> Iterator[None]:
        """End a process that turns out to be lost in the body of the `with` statement.

        Raises:
            EngineLostError: It was.
            DiskFullError: It was, by a full disk.
            EngineClosedError: It was closed meanwhile.
        """
        try:
            yield
        except LostError as error:
            self._lose(life, error)
            lost = f"{self.called} failed: {str(error).rstrip('.')}; see the log {self._log_path}."
            raise EngineLostError(lost) from None

    def _lose(self, life: Life, error: LostError) -> None:
        with self._lock:
            is_news = self._life is life and not self._is_closed
        self._end(life, str(error))
        if self._is_closed:
            raise self._closed_error() from None
        if is_news:
            self._losses += 1
            _LOG.warning(
                "Model %s was lost: %s; see the log %s (%d so far).",
                *(self._config.model, error, self._log_path, self._losses),
                extra={IS_OUTAGE: True},
            )
        if error.full:
            raise error.full from None

    def _closed_error(self) -> EngineClosedError:
        return EngineClosedError(f"{self.called} was closed; the run is ending.")

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


def _temporary_places(folder: Path) -> dict[str, str]:
    """Have a process leave its files, such as vLLM's `vllm_dist_*`, in a folder that is removed with it."""
    places = {"TMPDIR": str(folder)}
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:  # compiled functions are for later processes, too
        places["TORCHINDUCTOR_CACHE_DIR"] = str(temporary_root() / f"torchinductor_{os.getuid()}")
    return places
