"""The towers as the flow sees them: a child process that loads once and answers requests in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from infra.errors import EngineLostError
from reelabel_engine.environment import find_python, towers_environment
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import CountTokens, EmbedFrames, EmbedTexts, LoadTowers, TowersConfig
from tasks.model.model_process import LostError, ModelProcess, SingleReply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from reelabel_engine.protocol import Request, TokenCounts, TowersInfo, Vectors
    from tasks.model.model_process import Life

_DEATHS_PER_REQUEST = 2


class TowersProcess(ModelProcess[TowersConfig]):
    """The towers of a model in their own process; a context manager that shuts it down.

    `start` returns at once; all else blocks, and is thread-safe. Requests of several threads are queued in the process,
    so that it need not wait for the next one. If it dies, it is started again and asked again, once per request.

    Attributes:
        starts: Number of times it was started.
        images_embedded: Frames embedded.
    """

    closed = "The towers were closed; the run is ending."
    images_embedded = 0

    def _begin(self) -> Life:
        python = find_python(self._python, needs="transformers")
        return self._start(python, LoadTowers(config=self._config), towers_environment(self._config))

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
        vectors = self._vectors(lambda number: EmbedFrames(number=number, videos=tuple(videos)), count)
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
        return self._vectors(lambda number: EmbedTexts(number=number, texts=tuple(texts)), len(texts))

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of texts, special ones included; `TowersInfo.max_tokens` is the limit.

        Raises:
            EngineLostError: As `embed_frames`.
            ModelError: As `embed_frames`.
        """
        reply: TokenCounts = self._ask(lambda number: CountTokens(number=number, texts=tuple(texts)))
        return list(reply.tokens)

    def _vectors(self, build: Callable[[int], Request], count: int) -> npt.NDArray[np.float32]:
        shape = (count, self.wait_ready().dimensions)
        if not count:
            return np.empty(shape, np.float32)
        reply: Vectors = self._ask(build)
        if reply.vectors.shape != shape or reply.vectors.dtype != np.float32:
            raise ModelError(f"Model {self._config.model} returned no vectors of shape {shape}.")
        if not np.isfinite(reply.vectors).all():
            raise ModelError(
                f"Model {self._config.model} returned vectors that are not finite; its weights are faulty."
            )
        return reply.vectors

    def _ask(self, build: Callable[[int], Request]) -> Any:  # noqa: ANN401 - the reply to that request
        for _ in range(_DEATHS_PER_REQUEST):
            life, reply = self._living(), SingleReply()
            self._ready(life)
            try:
                life.send(build, reply)
                return self._wait(life, reply)
            except LostError as error:
                self._lose(life, error)
                lost = f"The towers failed: {str(error).rstrip('.')}; see the log {self._log_path}."
        raise EngineLostError(lost)
