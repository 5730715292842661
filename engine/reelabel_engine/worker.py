"""Render questions and live requests, in processes beside the engine's."""

from __future__ import annotations

import io
import pickle
import time
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from reelabel.errors import JobError
from reelabel.unexpected import failing_alone
from reelabel_engine.errors import InferenceError
from reelabel_engine.live.renderer import LiveRenderer
from reelabel_engine.protocol import EngineConfig, LiveRequest, Question, Rejected
from reelabel_engine.renderer import EngineRequest, HashedMedium, InputRenderer

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

VideoQuestions: TypeAlias = tuple[tuple[bytes, ...], list[Question]]  # frame files, and the questions that show them


class Worker:
    """Renders the questions on several videos at once, and parts of live prompts, in a process beside the engine's.

    What it returns is pickled: for each video, a list with an `EngineRequest` or a `Rejected` per question; of a
    live request, what `LiveRenderer.render` returns.
    """

    def __init__(self, config: EngineConfig) -> None:
        torch.set_num_threads(1)
        self._renderer = InputRenderer(config)
        self._live = LiveRenderer(self._renderer)

    def render(self, videos: Sequence[VideoQuestions]) -> list[bytes]:
        return [_pickled(self._render(frame_files, questions)) for frame_files, questions in videos]

    def render_live(self, request: LiveRequest) -> bytes:
        return _pickled(self._live.render(request))

    def _render(self, frame_files: Sequence[bytes], questions: Sequence[Question]) -> list[EngineRequest | Rejected]:
        """Prepare all questions, at least one, that show the same videos and images, given in order."""
        started = time.perf_counter()
        try:
            with failing_alone("Reading frames for the model", stage=InferenceError.stage):
                shown = zip(questions[0].shown, frame_files, strict=True)
                media = [HashedMedium.of(each.kind, data) for each, data in shown]
        except JobError as error:
            return [Rejected.of(error)] * len(questions)
        ready: list[EngineRequest | Rejected] = []
        for question in questions:
            try:
                with failing_alone("Preparing the question for the model", stage=InferenceError.stage):
                    tokens = self._renderer.tokens(question)
                    starts_s = media[0].starts_s if len(media) == 1 else ()
                    prompt = self._renderer.render(self._renderer.prompt(question, media), starts_s=starts_s)
            except JobError as error:
                ready.append(Rejected.of(error))
                continue
            ended = time.perf_counter()
            ready.append(
                EngineRequest(
                    prompt=prompt,
                    tokens=tokens,
                    preprocess_ms=(ended - started) * 1e3,
                    max_tokens=question.max_tokens,
                    schema=question.schema,
                )
            )
            started = ended
        return ready


def _pickled(value: object) -> bytes:
    file = io.BytesIO()
    _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    """Pickles tensors as raw bytes, in a fraction of the time that torch's own reduction takes on either side."""

    def reducer_override(self, value: object) -> Any:  # noqa: ANN401 - the signature of `pickle.Pickler`
        if not isinstance(value, torch.Tensor):
            return NotImplemented
        return _make_tensor, (value.reshape(-1).contiguous().view(torch.uint8).numpy(), value.dtype, value.shape)


def _make_tensor(data: npt.NDArray[np.uint8], dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
    return torch.from_numpy(data).view(dtype).reshape(shape)
