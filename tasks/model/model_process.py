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
from concurrent.futures import Future, wait
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_readable
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from infra.errors import EngineClosedError
from infra.logs import IS_OUTAGE
from reelabel.disk import disk_errors, full_disk, temporary_root
from reelabel.errors import DiskFullError
from reelabel.waiting import LOOK_S, go_on
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import (
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
    from collections.abc import Callable, Sequence
    from typing import Self

    from reelabel_engine.environment import EnginePython
    from reelabel_engine.protocol import LoadEncoder, LoadEngine, QuestionReply, Reply, Request
    from tasks.model.engine.keeper import KeptEngine


class Loadable(Protocol):
    """What to load."""

    @property
    def model(self) -> str:
        """Folder or hub name."""
        ...


Config = TypeVar("Config", bound=Loadable)
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


class Sink(Protocol):
    """Gets the replies to one request, on the thread that receives them."""

    def reply(self, reply: Any) -> None:  # noqa: ANN401 - of the kind that the request has
        """Take a reply."""

    def set_exception(self, error: BaseException) -> None:
        """Learn that the process was lost."""


class SingleReply(Future[Any]):
    """The sink of a request that has one reply: it is done with it."""

    reply = Future.set_result


class BatchReplies:
    """The sink of a batch, whose questions end in any order.

    Attributes:
        done: Has all replies, in the order of the questions.
    """

    def __init__(self, count: int) -> None:
        """Wait for so many replies, at least one."""
        self.done: Future[list[QuestionReply]] = Future()
        self._by_place: dict[int, QuestionReply] = {}
        self._count = count

    def add(self, place: int, reply: QuestionReply) -> bool:
        """Take the reply to one question; return whether it was the last one."""
        self._by_place[place] = reply
        if len(self._by_place) < self._count:
            return False
        self.done.set_result([self._by_place[place] for place in range(self._count)])
        return True

    def reply(self, reply: Any) -> None:  # noqa: ANN401, D102 - of a sink
        raise TypeError(f"{type(reply).__name__} is no reply to a batch")

    def set_exception(self, error: BaseException) -> None:  # noqa: D102 - of a sink
        self.done.set_exception(error)


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
        """Start to send and to receive."""
        self.process, self.folders = process, folders
        self._connection, self._temporary = connection, temporary
        self._lifeline: int | None = lifeline
        self.began_s = self.last_reply_s = time.monotonic()
        self.info: Future[Any] = Future()
        self.lost: LostError | None = None
        self._note_times, self._is_restart = note_times, is_restart
        self._lock = threading.Lock()
        self._numbers = count(first_number)
        self._pending: dict[int, Sink] = {}
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
        """Start the process."""
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
        """Take over a process that an earlier run has loaded."""
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

    def send(self, build: Callable[[int], Request], sink: Sink) -> int:
        """Queue a request; return its number, which `build` gets, too.

        If it cannot be encoded, the sink gets the error.

        Raises:
            LostError: The process was lost.
        """
        with self._lock:
            if self.lost:
                raise self.lost
            if not self._pending:
                self.last_reply_s = time.monotonic()
            number = next(self._numbers)
            self._pending[number] = sink
            self._outbox.put(build(number))
        return number

    def post(self, message: Request) -> None:
        """Queue a message that has no reply."""
        self._outbox.put(message)

    def give_up(self, number: int, message: Request) -> None:
        """Have a request ended by a message, if it has not; its sink gets nothing more."""
        with self._lock:
            if self._pending.pop(number, None) and not self.lost:
                self.post(message)

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
            sink = self._pending.pop(getattr(message, "number", -1), None)
        if sink:
            sink.set_exception(error)

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
        if isinstance(message, StepReplies):
            self._note_times(message.times)
        with self._lock:
            replied = [] if self.lost else self._sinks_of(message)  # once lost, all have been notified
        for sink, reply in replied:  # without the lock: some send the next request
            sink.reply(reply)

    def _sinks_of(self, message: Reply) -> list[tuple[Sink, Any]]:
        """Return who gets what of a message, but for batches, which get it at once; the lock is held."""
        if isinstance(message, (EngineLoaded, EncoderLoaded)):
            if self._is_restart:
                self._note_times(EngineTimes(restart_ms=(self.last_reply_s - self.began_s) * 1e3))
            self.info.set_result(message.info)
            return []
        if isinstance(message, Vectors):
            return [(self._pending.pop(message.number), message)]
        if not isinstance(message, StepReplies):
            raise TypeError(f"{type(message).__name__} is no reply to a request")
        for ref, reply in message.replies:
            batch = self._pending.get(ref.batch)  # None once it was given up
            if isinstance(batch, BatchReplies) and batch.add(ref.place, reply):
                del self._pending[ref.batch]
        taken = (
            (self._pending.get(number) if isinstance(reply, LiveText) else self._pending.pop(number, None), reply)
            for number, reply in message.live
        )
        return [(sink, reply) for sink, reply in taken if sink]

    def _fail(self, reason: str, full: DiskFullError | None = None) -> None:
        with self._lock:
            self.lost = lost = self.lost or LostError(reason, full)
            pending, self._pending = self._pending, {}
            if not self.info.done():
                self.info.set_exception(lost)
        for sink in pending.values():
            sink.set_exception(lost)

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
        closed: What to say of requests to a process that was closed.
        default_command: Starts the process in place of the engine's own.
        starts: Number of times it was started.
    """

    closed: ClassVar[str]
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
    def _begin(self) -> Life:
        """Start the process by `_start`.

        Raises:
            ConfigurationError: The packages that it needs are not installed.
        """

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
                raise EngineClosedError(self.closed)
            if self._life is None:
                self._life = self._begin()
                self.starts += 1
            return self._life

    def _ready(self, life: Life) -> Any:  # noqa: ANN401 - of what it loads
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


def _temporary_places(folder: Path) -> dict[str, str]:
    """Have a process leave its files, such as vLLM's `vllm_dist_*`, in a folder that is removed with it."""
    places = {"TMPDIR": str(folder)}
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:  # compiled functions are for later processes, too
        places["TORCHINDUCTOR_CACHE_DIR"] = str(temporary_root() / f"torchinductor_{os.getuid()}")
    return places
