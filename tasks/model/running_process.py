"""A running model process: the requests sent to it, their replies, and its end.

Its death or silence fails all pending requests; ending it ends its children and removes its temporary files. The
messages are those of `reelabel_engine.protocol`.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import math
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from concurrent.futures import Future
from itertools import count
from multiprocessing import Pipe
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self

from infra.logs import json_copy
from reelabel.disk import disk_errors, full_disk, temporary_root
from reelabel.errors import DiskFullError
from reelabel.waiting import LOOK_S, raise_if_abandoned
from reelabel_engine.environment import cache_folders
from reelabel_engine.protocol import (
    AskBatch,
    Cancel,
    EmbedImages,
    EmbedTexts,
    EncoderLoaded,
    EngineFailure,
    EngineInfo,
    EngineLoaded,
    EngineTimes,
    Keep,
    Kept,
    LiveDone,
    LiveQuery,
    LiveRequest,
    LiveText,
    LoadEncoder,
    LoadEngine,
    QuestionAnswer,
    Rejected,
    Reply,
    Request,
    StepReplies,
    Vectors,
    decode_reply,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from multiprocessing.connection import Connection
    from typing import IO

    from tasks.model.warm_engines import AdoptedProcess, KeptEngine


_LOG = logging.getLogger("reelabel")
_END_TIMEOUT_S = 10
_MIN_WAIT_S = 0.01
_MAX_BYTES = 1024**3  # of a reply; the largest has the vectors of 100,000 texts


class LostError(Exception):
    """The process died or hangs; the message says why."""

    def __init__(self, reason: str, full: DiskFullError | None = None) -> None:
        super().__init__(reason)
        self.full = full  # to be raised instead


class PendingRequest:
    """A request in progress; `unanswered` has the indices without a final reply, which pieces of a text are not."""

    def __init__(self, number: int, request: Request, count: int) -> None:
        self.number, self.request, self.unanswered = number, request, set(range(count))
        # Each reply with its index; then None, or an error in its place.
        self.replies: SimpleQueue[tuple[int, Any] | BaseException | None] = SimpleQueue()


class RunningProcess:
    """A process and the requests sent to it, until it is lost."""

    def __init__(
        self,
        process: subprocess.Popen[bytes] | AdoptedProcess,
        connection: Connection,
        *,
        temporary: Path,
        folders: list[Path],
        note_times: Callable[[EngineTimes], None],
        silence_s: float,
        is_restart: bool = False,
        info: EngineInfo | None = None,
    ) -> None:
        self.process, self.folders = process, folders  # which the process writes to
        self._connection, self._temporary = connection, temporary
        self.began_s = self.last_reply_s = time.monotonic()  # its last reply, or first request while idle
        self.info: Future[Any] = Future()  # `EngineInfo` or `EncoderInfo`, once the model is loaded
        if info:  # before the threads, to which the process may already be lost
            self.info.set_result(info)
        self.lost: LostError | None = None
        self._note_times, self._silence_s, self._is_restart = note_times, silence_s, is_restart
        self._lock, self._ending = threading.Lock(), threading.Lock()
        self._numbers = count()
        self._pending: dict[int, PendingRequest] = {}
        self._outbox: SimpleQueue[Request | None] = SimpleQueue()
        self._load: LoadEngine | LoadEncoder | None = None
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
        **options: Any,  # noqa: ANN401 - as of a `RunningProcess`
    ) -> Self:
        with disk_errors(temporary_root()):
            temporary = Path(tempfile.mkdtemp(prefix="reelabel-engine-"))
        lock = os.open(temporary, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_SH)  # inherited: what is not locked by a living process is removed by later runs
        environment = environment | _temporary_variables(temporary)
        connection, child_end = Pipe()
        try:
            with _output_file(log_path, as_json=log_as_json) as log:
                process = subprocess.Popen(  # noqa: S603 - our own command
                    [*command, str(child_end.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    pass_fds=(child_end.fileno(), lock),
                    start_new_session=True,
                )
        except BaseException:
            connection.close()
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        finally:
            child_end.close()
            os.close(lock)
        folders = [log_path.parent, *cache_folders(environment)]
        running = cls(process, connection, temporary=temporary, folders=folders, **options)
        running._load = load
        running.post(load)
        return running

    @classmethod
    def adopt(cls, kept: KeptEngine, *, folders: list[Path], **options: Any) -> Self:  # noqa: ANN401 - as of a `RunningProcess`
        return cls(kept.process, kept.connection, temporary=kept.temporary, folders=folders, info=kept.info, **options)

    def leave(self, seconds: float, facts_path: Path) -> bool:
        """Leave the process to the next run, if it is loaded and idle; return whether it was left."""
        with self._lock:
            if self.lost or self._pending or not self.info.done() or self.info.exception():
                return False
        try:
            keep = self.send(lambda number: Keep(number=number, seconds=seconds, facts_path=str(facts_path)))
            [_] = self.replies(keep, silence_s=_END_TIMEOUT_S)
        except LostError as error:
            _LOG.warning("The engine cannot be kept for the next run: %s.", str(error).rstrip("."))
            return False
        self._fail("it was kept for the next run")
        self.process.returncode = 0  # nobody here waits for it
        self._close()
        return True

    def send(self, build: Callable[[int], Request], *, count: int = 1) -> PendingRequest:
        """Queue a request, made by `build` from its number, which ends after `count` replies.

        If it cannot be encoded, the error is its reply.

        Raises:
            LostError: The process was lost.
        """
        with self._lock:
            if self.lost:
                raise self.lost
            if not self._pending:
                self.last_reply_s = time.monotonic()
            number = next(self._numbers)
            request = self._pending[number] = PendingRequest(number, build(number), count)
            self._outbox.put(request.request)
        return request

    def post(self, message: Request) -> None:
        """Queue a message that has no reply."""
        self._outbox.put(message)

    def cancel(self, request: PendingRequest) -> None:
        """Cancel a request that has not ended; it gets no more replies."""
        with self._lock:
            if self._pending.pop(request.number, None) and not self.lost:
                self.post(Cancel(number=request.number))

    def replies(
        self, request: PendingRequest, *, silence_s: float | None = None
    ) -> Generator[tuple[int, Any], None, None]:
        """Yield the replies to a request, with their indices; closing the generator cancels it.

        Raises:
            LostError: The process died, or has replied to nothing for so long that it counts as hung.
            AbandonedError: Nobody waits for the replies any more.
        """
        silence_s = silence_s or self._silence_s
        try:
            while True:
                raise_if_abandoned()
                silent_s = time.monotonic() - self.last_reply_s
                try:
                    reply = request.replies.get(timeout=min(LOOK_S, max(_MIN_WAIT_S, silence_s - silent_s)))
                except Empty:
                    if silent_s >= silence_s and self.info.done():
                        raise LostError(f"no answer within {silence_s:g} s") from None
                    continue
                if reply is None:
                    return
                if isinstance(reply, BaseException):
                    raise reply
                yield reply
        finally:
            self.cancel(request)

    def _send_messages(self) -> None:
        # In its own thread: a hung process stops reading, and the caller must still notice the timeout.
        with contextlib.suppress(OSError):
            while (message := self._outbox.get()) is not None:
                try:
                    data = encode(message)
                except Exception as error:  # noqa: BLE001 - whatever it is, it concerns one request
                    self._fail_request(message, error)
                else:
                    self._connection.send_bytes(data)

    def _fail_request(self, message: Request, error: Exception) -> None:
        with self._lock:
            request = self._pending.pop(getattr(message, "number", -1), None)
        if request:
            request.replies.put(error)

    def _receive_messages(self) -> None:
        reason, full = "its process died", None
        try:
            while not isinstance(message := decode_reply(self._connection.recv_bytes(_MAX_BYTES)), EngineFailure):
                self._handle(message)
            reason, full = message.message, DiskFullError(message.message) if message.is_disk_full else None
        except Exception as error:  # noqa: BLE001 - whatever it is, it fails the pending requests
            if not isinstance(error, OSError | EOFError) or str(error) == "bad message length":
                reason = f"its process sent an invalid message: {error}"
        self._fail(reason, full or full_disk(self.folders))

    def _handle(self, message: Reply) -> None:
        self.last_reply_s = time.monotonic()
        match message:
            case EngineLoaded() | EncoderLoaded():
                _require_reply(self._load, 0, message)
                if self._is_restart:
                    self._note_times(EngineTimes(restart_ms=(self.last_reply_s - self.began_s) * 1e3))
                with self._lock:
                    if not self.lost:
                        self.info.set_result(message.info)
            case Vectors() | Kept():
                self._deliver(message.number, 0, message)
            case StepReplies():
                self._note_times(message.times)
                for ref, reply in message.replies:
                    self._deliver(ref.number, ref.slot, reply)
            case _:
                raise TypeError(f"{type(message).__name__} is no reply to a request")

    def _deliver(self, number: int, index: int, reply: Any) -> None:  # noqa: ANN401 - any
        with self._lock:
            pending = self._pending.get(number)
            if pending is None:  # it was cancelled
                return
            if index not in pending.unanswered:
                raise ValueError(f"a second reply with index {index}, or one beyond the request")
            _require_reply(pending.request, index, reply)
            pending.replies.put((index, reply))
            if not isinstance(reply, LiveText):
                pending.unanswered.remove(index)
            if not pending.unanswered:
                del self._pending[number]
                pending.replies.put(None)

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
        with self._ending:
            if self._connection.closed:  # its id may be that of another process by now
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_END_TIMEOUT_S)
            # Even if it has exited: a child of it may be stuck, and hold the GPU's memory.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self._close()
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _close(self) -> None:
        with self._lock:
            if self._connection.closed:
                return
            with socket.socket(fileno=os.dup(self._connection.fileno())) as ours, contextlib.suppress(OSError):
                ours.shutdown(socket.SHUT_RDWR)  # wakes the threads that read and write
            self._outbox.put(None)
        for thread in self._threads:
            thread.join(_END_TIMEOUT_S)
        with self._lock:
            if not self._connection.closed:  # by another thread meanwhile
                self._connection.close()


def _require_reply(request: Request | None, index: int, reply: Any) -> None:  # noqa: ANN401 - any
    """Raise ValueError if a reply is of another kind than the request, or its probabilities do not fit the choices."""
    match request, reply:
        case AskBatch(), QuestionAnswer():
            choices = request.batch.questions[index].choices
        case LiveRequest(), LiveDone():
            choices = request.query.choices if request.query else ()
        case (
            ((AskBatch() | LiveRequest()), Rejected())
            | (LiveRequest(query=LiveQuery()), LiveText())
            | ((EmbedImages() | EmbedTexts()), Vectors())
            | (Keep(), Kept())
            | (LoadEngine(), EngineLoaded())
            | (LoadEncoder(), EncoderLoaded())
        ):
            return
        case _:
            raise ValueError(f"{type(reply).__name__} in reply to {type(request).__name__}")
    found = reply.probabilities
    if len(found) != len(choices) or not math.isclose(sum(found), bool(choices), abs_tol=1e-3):
        raise ValueError(f"{found} as the probabilities of {len(choices)} choices")


@contextlib.contextmanager
def _output_file(path: Path, *, as_json: bool) -> Iterator[IO[bytes]]:
    """Yield a file for the output of a process, appended to a log; with `as_json`, as lines of JSON.

    Raises:
        DiskFullError: The log's disk is full.
    """
    with disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        # It may quote prompts and paths.
        log = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
    with log, os.fdopen(json_copy(os.dup(log.fileno()), logger="engine"), "wb") if as_json else log as output:
        yield output


def _temporary_variables(folder: Path) -> dict[str, str]:
    """Return variables by which a process writes temporary files, such as vLLM's `vllm_dist_*`, to a folder."""
    variables = {"TMPDIR": str(folder)}
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:  # compiled functions are for later processes, too
        variables["TORCHINDUCTOR_CACHE_DIR"] = str(temporary_root() / f"torchinductor_{os.getuid()}")
    return variables
