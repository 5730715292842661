"""Embeds frames of several videos in batches that threads share."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from infra.errors import EngineLostError
from infra.logs import in_context
from reelabel.errors import ReelabelError
from reelabel.waiting import LOOK_S, raise_if_abandoned, working_until
from reelabel_engine.errors import InferenceError
from tasks.model.shared_lock import SharedLock

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from tasks.embedding.encoder import Encoder

# While a process answers one request, the next one is already queued in it.
_REQUESTS_PER_PROCESS = 2
_Waiting = tuple["npt.NDArray[np.uint8]", "Future[EmbeddedFrames]"]


class EmbeddedFrames(NamedTuple):
    """The frames of one video, embedded."""

    vectors: npt.NDArray[np.float32]  # L2-normalised vectors; shape (N, D), float32
    embed_ms: float  # its share of the encoder's time


@dataclass(slots=True, kw_only=True)
class FrameBatcher:
    """Batches the frames of concurrent callers; never waits for a batch to fill. Thread-safe."""

    encoder: Encoder
    batch_frames: int = 128  # frames at which a request is full
    charge: Callable[[], AbstractContextManager[object]] = nullcontext  # measures the encoder's busy time
    clock_s: Callable[[], float] = time.perf_counter
    _waiting: deque[_Waiting] = field(default_factory=deque, init=False, repr=False)
    _counted_until_s: float = field(default=-math.inf, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _encoder_lock: SharedLock = field(default_factory=SharedLock, init=False, repr=False)
    _senders: ThreadPoolExecutor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._senders = ThreadPoolExecutor(_REQUESTS_PER_PROCESS * self.encoder.processes, "embed")

    def start(self) -> None:
        self.encoder.start()

    def embed(self, frames: npt.NDArray[np.uint8]) -> EmbeddedFrames:
        """Embed the RGB frames of one video, shape (N, H, W, 3).

        Raises:
            InferenceError: Only these frames crash the encoder.
            EngineLostError: Other frames crash it as well, or it hangs.
            ModelError: It cannot be reloaded.
            AbandonedError: Nobody waits for these frames any more.
        """
        done: Future[EmbeddedFrames] = Future()
        with self._lock:
            self._waiting.append((frames, done))
        self._senders.submit(in_context(self._send))
        while not wait([done], LOOK_S).done:
            raise_if_abandoned()
        return done.result()

    def _send(self) -> None:
        # A caller that leaves must not end a request that has frames of others.
        with working_until(lambda: False):
            if group := self._take():
                self._answer(group)

    def _take(self) -> list[_Waiting]:
        with self._lock:
            totals = accumulate(len(frames) for frames, _ in self._waiting)
            fitting = sum(1 for _ in takewhile(lambda total: total <= self.batch_frames, totals))
            return [self._waiting.popleft() for _ in range(min(max(1, fitting), len(self._waiting)))]

    def _answer(self, group: list[_Waiting]) -> None:
        try:
            with self._encoder_lock.shared(), self.charge():
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
        """Retry each video alone to find the one that crashes the encoder although black frames do not."""
        hopeless: BaseException | None = None
        for frames, done in group:
            if hopeless:
                done.set_exception(hopeless)
                continue
            try:
                with self._encoder_lock.exclusive():  # another video that crashes it would take this one with it
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
            raise InferenceError(f"The frames of this video crash the model's process: {error.message}") from error

    def _embed(self, videos: list[npt.NDArray[np.uint8]]) -> EmbeddedFrames:
        """Embed videos; the time of a request that was queued in the process starts at the end of the previous one."""
        began_s = self.clock_s()
        vectors = self.encoder.embed_images(videos)
        with self._lock:
            ended_s = self.clock_s()
            counted_s = ended_s - max(began_s, self._counted_until_s)
            self._counted_until_s = ended_s
        return EmbeddedFrames(vectors, counted_s * 1e3)


def _is_unexpected(error: BaseException) -> bool:
    """Return whether an error may be caused by the frames of one video rather than by the encoder."""
    return isinstance(error, Exception) and not isinstance(error, ReelabelError)
