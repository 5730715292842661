"""Frames of several videos, embedded in batches that threads share."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from infra.errors import EngineLostError
from reelabel.errors import ReelabelError
from reelabel_engine.errors import InferenceError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from tasks.embedding.encoder import Encoder

# While a process answers one request, the next one waits in it.
_REQUESTS_PER_PROCESS = 2
_Waiting = tuple["npt.NDArray[np.uint8]", "Future[EmbeddedFrames]"]


class EmbeddedFrames(NamedTuple):
    """The frames of one video, embedded."""

    vectors: npt.NDArray[np.float32]  # L2-normalised vectors; shape (N, D), float32
    embed_ms: float  # its share of the encoder's time; no moment counts twice


@dataclass(slots=True, kw_only=True)
class FrameBatcher:
    """Batches the frames of concurrent callers; never waits for a batch to fill. Thread-safe."""

    encoder: Encoder
    batch_frames: int = 128  # frames after which a request takes no more videos
    charge: Callable[[], AbstractContextManager[object]] = nullcontext  # measures the time in which the encoder works
    clock_s: Callable[[], float] = time.perf_counter
    _waiting: deque[_Waiting] = field(default_factory=deque, init=False, repr=False)
    _counted_until_s: float = field(default=-math.inf, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _semaphore: threading.Semaphore = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._semaphore = threading.Semaphore(_REQUESTS_PER_PROCESS * self.encoder.processes)

    def start(self) -> None:
        self.encoder.start()

    def embed(self, frames: npt.NDArray[np.uint8]) -> EmbeddedFrames:
        """Embed the RGB frames of one video, shape (N, H, W, 3).

        Raises:
            InferenceError: The encoder dies on these frames alone, and embeds others.
            EngineLostError: It dies on others as well, or hangs.
            ModelError: It cannot be loaded again.
        """
        done: Future[EmbeddedFrames] = Future()
        with self._lock:
            self._waiting.append((frames, done))
        with self._semaphore:
            while not done.done() and (group := self._take()):
                self._answer(group)
        return done.result()  # of a request that another thread has taken

    def _take(self) -> list[_Waiting]:
        with self._lock:
            totals = accumulate(len(frames) for frames, _ in self._waiting)
            fitting = sum(1 for _ in takewhile(lambda total: total <= self.batch_frames, totals))
            return [self._waiting.popleft() for _ in range(min(max(1, fitting), len(self._waiting)))]

    def _answer(self, group: list[_Waiting]) -> None:
        try:
            with self.charge():
                vectors, embed_ms = self._embed([frames for frames, _ in group])
            ends = np.cumsum([len(frames) for frames, _ in group])
            shares = [
                EmbeddedFrames(part, embed_ms * len(part) / max(1, len(vectors)))
                for part in np.split(vectors, ends[:-1])
            ]
        except BaseException as error:  # noqa: BLE001 - raised in the waiting threads
            if isinstance(error, EngineLostError) or _is_unexpected(error):
                self._answer_alone(group)
                return
            for _, done in group:
                done.set_exception(error)
        else:
            for (_, done), share in zip(group, shares, strict=True):
                done.set_result(share)

    def _answer_alone(self, group: list[_Waiting]) -> None:
        """Retry each video alone to find the one that crashes the encoder, while black frames do not."""
        hopeless: BaseException | None = None
        for frames, done in group:
            if hopeless:
                done.set_exception(hopeless)
                continue
            try:
                done.set_result(self._embed_alone(frames))
            except BaseException as error:  # noqa: BLE001 - raised in the waiting threads
                is_its_own = isinstance(error, InferenceError) or _is_unexpected(error)
                hopeless = None if is_its_own else error
                done.set_exception(error)

    def _embed_alone(self, frames: npt.NDArray[np.uint8]) -> EmbeddedFrames:
        try:
            return self._embed([frames])
        except EngineLostError as error:
            self.encoder.embed_images([np.zeros_like(frames[:1])])
            raise InferenceError(f"The model's process dies on the frames of this video: {error.message}") from error

    def _embed(self, videos: list[npt.NDArray[np.uint8]]) -> EmbeddedFrames:
        """Embed videos; a request that waited in the process for another one counts from the end of that."""
        began_s = self.clock_s()
        vectors = self.encoder.embed_images(videos)
        with self._lock:
            ended_s = self.clock_s()
            counted_s = ended_s - max(began_s, self._counted_until_s)
            self._counted_until_s = ended_s
        return EmbeddedFrames(vectors, counted_s * 1e3)


def _is_unexpected(error: BaseException) -> bool:
    """Return whether an error may be about the frames of one video, and says nothing of the encoder."""
    return isinstance(error, Exception) and not isinstance(error, ReelabelError)
