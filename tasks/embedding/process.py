"""The towers as the flow sees them: a child process that loads once and answers requests in order."""

from __future__ import annotations

import sys
from collections import deque
from concurrent.futures import Future
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from infra.errors import EngineLostError
from reelabel_engine.environment import towers_environment
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import EngineFailure
from reelabel_engine.towers_protocol import Message, TowersInfo, receive, send
from tasks.model.model_process import Incarnation, LostError, ModelProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


TOWERS_COMMAND = (sys.executable, "-P", "-m", "reelabel_engine.towers_main")
_DEATHS_PER_REQUEST = 2


class TowersProcess(ModelProcess["TowersConfig", "_TowersLife"]):
    """The towers of a model in their own process; a context manager that shuts it down.

    `start` returns at once; all else blocks, and is thread-safe. Requests of several threads are queued in the process,
    so that it need not wait for the next one. If it dies, it is started again and asked again, once per request.

    Attributes:
        starts: Number of times it was started.
        images_embedded: Frames embedded.
    """

    closed = "The towers were closed; the run is ending."
    default_command = TOWERS_COMMAND
    images_embedded = 0

    def _begin(self) -> _TowersLife:
        return _TowersLife(
            self._command,
            environment=towers_environment(self._config),
            log_path=self._log_path,
            log_as_json=self._log_as_json,
            config=Message("config", asdict(self._config)),
        )

    def wait_ready(self) -> TowersInfo:
        """Wait until the model is loaded; start it if it is not.

        Raises:
            ModelError: It cannot be loaded, or not within the timeout.
            DiskFullError: It cannot be loaded because a disk is full.
            EngineClosedError: It was closed.
        """
        info: TowersInfo = self._ready(self._living())
        return info

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
        for _ in range(_DEATHS_PER_REQUEST):
            life = self._living()
            self._ready(life)
            try:
                return self._wait(life, life.send(request))
            except LostError as error:
                self._lose(life, error)
                lost = f"The towers failed: {str(error).rstrip('.')}; see the log {self._log_path}."
        raise EngineLostError(lost)


class _TowersLife(Incarnation[TowersInfo]):
    """One run of the towers' process; messages are JSON and raw arrays, and are answered in order."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:  # noqa: ANN401 - those of Incarnation
        self._pending: deque[Future[Message]] = deque()
        super().__init__(command, **options)

    def send(self, request: Message) -> Future[Message]:
        """Queue a request; requests are answered in order."""
        answered: Future[Message] = Future()
        with self._lock:
            if self._lost:
                raise self._lost
            if not self._pending:
                self.touch()
            self._pending.append(answered)
            self._outbox.put(request)
        return answered

    def _write(self, message: Message) -> None:
        send(self._connection, message)

    def _read(self) -> EngineFailure | None:
        message = receive(self._connection)
        if message.kind == "failure":
            return EngineFailure(message=str(message.body["message"]), is_disk_full=bool(message.body["is_disk_full"]))
        self._handle(message)
        return None

    def _handle(self, message: Message) -> None:
        self.touch()
        with self._lock:
            if self._lost:  # all waiters have been notified
                return
            if message.kind == "info":
                self.info.set_result(TowersInfo(**message.body))
                return
            answered = self._pending.popleft()
        answered.set_result(message)

    def _abandon(self) -> list[Future[Any]]:
        pending, self._pending = list(self._pending), deque()
        return pending
