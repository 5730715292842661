"""The towers as the flow sees them: a child process that loads once and answers requests in order."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from concurrent.futures import Future, wait
from dataclasses import asdict
from importlib.util import find_spec
from multiprocessing import Pipe
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

import numpy as np

from infra.errors import EngineClosedError, EngineLostError, ModelError
from reelabel.disk import full_disk
from reelabel.errors import ConfigurationError, DiskFullError
from reelabel.temporary import temporary_folder
from tasks.embedding.protocol import Message, TowersInfo, receive, send
from tasks.model.engine.log import engine_log
from tasks.model.engine.process import CPU_SITE
from tasks.model.protocol import Lifetime
from tasks.model.written_folders import written_folders

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tasks.embedding.protocol import TowersConfig

TOWERS_COMMAND = (sys.executable, "-P", "-m", "tasks.embedding.towers_main")
_END_TIMEOUT_S = 10
_DEATHS_PER_REQUEST = 2
_CLOSED = "The towers were closed; the run is ending."
_LOG = logging.getLogger(__name__)


class TowersProcess(Lifetime):
    """The towers of a model in their own process; a context manager that shuts it down.

    `start` returns at once; all else blocks, and is thread-safe. Requests of several threads are queued in the process,
    so that it need not wait for the next one. If it dies, it is started again and asked again, once per request.

    Attributes:
        starts: Number of times it was started.
        images_embedded: Frames embedded.
    """

    def __init__(
        self,
        config: TowersConfig,
        *,
        log_path: Path,
        log_as_json: bool = False,
        start_timeout_s: float,
        answer_timeout_s: float = 600.0,
        command: Sequence[str] = TOWERS_COMMAND,
    ) -> None:
        """Store the configuration; nothing is started yet.

        Args:
            config: What to load.
            log_path: File that receives the process's output.
            log_as_json: Write each line of it as JSON.
            start_timeout_s: Seconds allowed for loading.
            answer_timeout_s: Seconds without a reply, while requests are pending, after which it counts as hung.
            command: Starts the process; the descriptors of its connection and its lifeline are appended.
        """
        self.starts = 0
        self.images_embedded = 0
        self._config = config
        self._log_path, self._log_as_json = log_path, log_as_json
        self._start_timeout_s, self._answer_timeout_s = start_timeout_s, answer_timeout_s
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
            ConfigurationError: transformers or torch is not installed.
            EngineClosedError: It was closed.
        """
        self._living()

    def wait_ready(self) -> TowersInfo:
        """Wait until the model is loaded; start it if it is not.

        Raises:
            ModelError: It cannot be loaded, or not within the timeout.
            DiskFullError: It cannot be loaded because a disk is full.
            EngineClosedError: It was closed.
        """
        return self._ready(self._living())

    def embed_frames(self, videos: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        """Embed the frames of several videos, in batches across videos.

        Args:
            videos: RGB pixels of each; shape (N, H, W, 3), any size.

        Returns:
            L2-normalised vectors of all frames in order; shape (sum of N, D), float32.

        Raises:
            EngineLostError: The process died twice on these frames, or hung.
            ModelError: It cannot be loaded, or returned something else than vectors.
        """
        for frames in videos:
            if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[-1] != 3 or 0 in frames.shape[1:]:  # noqa: PLR2004
                raise ValueError(f"frames are uint8 of shape (N, H, W, 3), not {frames.dtype} of {frames.shape}")
        count = sum(map(len, videos))
        vectors = self._vectors(Message("frames", {}, tuple(videos)), count)
        with self._lock:
            self.images_embedded += count
        return vectors

    def embed_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed texts; those that are too long are cut, so look at `count_tokens` first.

        Returns:
            L2-normalised vectors; shape (K, D), float32.

        Raises:
            EngineLostError: As `embed_frames`.
            ModelError: As `embed_frames`.
        """
        return self._vectors(Message("texts", {"texts": list(texts)}), len(texts))

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of texts, special ones included; `TowersInfo.max_tokens` is the limit.

        Raises:
            EngineLostError: As `embed_frames`.
            ModelError: As `embed_frames`.
        """
        counts: list[int] = self._ask(Message("count", {"texts": list(texts)})).body["tokens"]
        return counts

    def close(self) -> None:
        """End the process for good; idempotent."""
        with self._lock:
            self._is_closed = True
            life = self._life
        if life is not None:
            self._end(life, "the towers were closed")

    def _vectors(self, request: Message, count: int) -> npt.NDArray[np.float32]:
        shape = (count, self.wait_ready().dimensions)
        if not count:
            return np.empty(shape, np.float32)
        arrays = self._ask(request).arrays
        if len(arrays) != 1 or arrays[0].shape != shape or arrays[0].dtype != np.float32:
            raise ModelError(f"Model {self._config.model} returned no vectors of shape {shape}.")
        if not np.isfinite(arrays[0]).all():
            raise ModelError(
                f"Model {self._config.model} returned vectors that are not finite; its weights are faulty."
            )
        return arrays[0]

    def _ask(self, request: Message) -> Message:
        for death in range(1, _DEATHS_PER_REQUEST + 1):
            life = self._living()
            self._ready(life)
            try:
                answered = life.send(request)
                while not answered.done():
                    self._await(life, answered)
                return answered.result()
            except _LostError as error:
                self._end(life, str(error))
                if self._is_closed:
                    raise EngineClosedError(_CLOSED) from None
                if error.full:
                    raise error.full from None
                lost = f"The towers failed: {str(error).rstrip('.')}; see the log {self._log_path}."
                if death < _DEATHS_PER_REQUEST:
                    _LOG.warning("%s They are started again.", lost)
        raise EngineLostError(lost)

    def _ready(self, life: _Incarnation) -> TowersInfo:
        try:
            return life.info.result(self._start_timeout_s)
        except TimeoutError:
            full = full_disk(life.folders)
            fault = f"Model {self._config.model} did not load within {self._start_timeout_s:g} s"
        except _LostError as error:
            if self._is_closed:
                raise EngineClosedError(_CLOSED) from None
            full = error.full
            fault = f"Cannot load model {self._config.model}: {str(error).rstrip('.')}"
        self._end(life, "the model did not load")
        raise full or ModelError(f"{fault}; see the log {self._log_path}.")

    def _await(self, life: _Incarnation, answered: Future[Message]) -> None:
        silent_s = time.monotonic() - life.last_reply_s
        if silent_s >= self._answer_timeout_s:
            raise _LostError(f"no answer within {self._answer_timeout_s:g} s")
        wait([answered], self._answer_timeout_s - silent_s)

    def _living(self) -> _Incarnation:
        with self._lock:
            if self._is_closed:
                raise EngineClosedError(_CLOSED)
            if self._life is None:
                self._life = _Incarnation(
                    self._config, command=self._command, log_path=self._log_path, log_as_json=self._log_as_json
                )
                self.starts += 1
            return self._life

    def _end(self, life: _Incarnation, reason: str) -> None:
        with self._lock:
            if self._life is life:
                self._life = None
        life.end(reason)


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
        last_reply_s: When it last replied, or was last asked while idle.
        folders: The folders that it writes to.
    """

    def __init__(self, config: TowersConfig, *, command: tuple[str, ...], log_path: Path, log_as_json: bool) -> None:
        self._temporary = contextlib.ExitStack()
        folder = self._temporary.enter_context(temporary_folder("engine"))
        environment = towers_environment(config) | {"TMPDIR": str(folder)}
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
        self.last_reply_s = time.monotonic()
        self.info: Future[TowersInfo] = Future()
        self._lock = threading.Lock()
        self._pending: deque[Future[Message]] = deque()
        self._lost: _LostError | None = None
        self._outbox: SimpleQueue[Message | None] = SimpleQueue()
        self._outbox.put(Message("config", asdict(config)))
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._send_all, self._receive_all)]
        for thread in self._threads:
            thread.start()

    def send(self, request: Message) -> Future[Message]:
        """Queue a request; requests are answered in order."""
        answered: Future[Message] = Future()
        with self._lock:
            if self._lost:
                raise self._lost
            if not self._pending:
                self.last_reply_s = time.monotonic()
            self._pending.append(answered)
            self._outbox.put(request)
        return answered

    def _send_all(self) -> None:
        # In its own thread: a hung process stops reading, and the caller must still notice the timeout.
        with contextlib.suppress(OSError):
            while (message := self._outbox.get()) is not None:
                send(self._connection, message)

    def _receive_all(self) -> None:
        reason, full = "its process died", None
        try:
            while True:
                message = receive(self._connection)
                if message.kind == "failure":
                    reason = str(message.body["message"])
                    full = DiskFullError(reason) if message.body["is_disk_full"] else None
                    break
                self._handle(message)
        except (EOFError, OSError):
            pass
        except (ValueError, KeyError, TypeError, IndexError):
            reason = "its process sent something else than an answer"
        self._fail(reason, full or full_disk(self.folders))

    def _handle(self, message: Message) -> None:
        self.last_reply_s = time.monotonic()
        with self._lock:
            if self._lost:  # all waiters have been notified
                return
            if message.kind == "info":
                self.info.set_result(TowersInfo(**message.body))
                return
            answered = self._pending.popleft()
        answered.set_result(message)

    def _fail(self, reason: str, full: DiskFullError | None = None) -> None:
        with self._lock:
            self._lost = lost = self._lost or _LostError(reason, full)
            pending, self._pending = self._pending, deque()
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


def towers_environment(config: TowersConfig) -> dict[str, str]:
    """Build the environment variables of the towers' process.

    Raises:
        ConfigurationError: transformers or torch is not installed.
    """
    if not all(map(find_spec, ("torch", "transformers"))):
        raise ConfigurationError(
            "transformers and torch are not installed; install 'reelabel-app[gpu]', or 'reelabel-app[cpu]' if there is "
            "no GPU."
        )
    inherited = os.environ.get("PYTHONPATH")
    environment = os.environ | {
        "PYTHONSAFEPATH": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # For torchvision beside a CPU build of torch; it does nothing beside any other.
        "PYTHONPATH": os.pathsep.join(filter(None, [str(CPU_SITE), inherited])),
    }
    if config.devices:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(config.devices)
    if Path(config.model).is_dir():
        environment["HF_HUB_OFFLINE"] = "1"
    return environment
