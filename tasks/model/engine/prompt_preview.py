"""Show what the model is sent for one question, down to its tokens; runs in a process that loads no weights."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from infra.errors import ModelError
from tasks.model.engine.process import engine_environment

if TYPE_CHECKING:
    from reelabel.integrations.vllm.video_input import Video
    from tasks.model.protocol import EngineConfig, Question, QuestionFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewRequest:
    """A question and the videos and images that it shows, as returned by `reelabel.integrations.vllm.video_input`."""

    config: EngineConfig
    question: Question
    media: tuple[Video, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSpan:
    """A run of the prompt.

    Attributes:
        text: Decoded text, including special tokens; a single token if it repeats.
        repeats: Number of repetitions.
    """

    text: str
    repeats: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedPrompt:
    """A prompt as the model takes it.

    Attributes:
        runs: The whole prompt in order.
        tokens: Tokens of the whole prompt; None if it is too long to be counted.
        video_tokens: Those of them that represent videos and images.
        max_model_len: Maximum tokens of a prompt and its answer.
        choices: Token ids and texts per choice; empty if the choices cannot be told apart.
        refusals: Why the engine would not answer.
    """

    runs: tuple[PromptSpan, ...]
    tokens: int | None
    video_tokens: int | None
    max_model_len: int
    choices: tuple[dict[int, str], ...]
    refusals: tuple[QuestionFailure, ...]

    @property
    def text(self) -> str:
        """The whole prompt, unabridged."""
        return "".join(run.text * run.repeats for run in self.runs)


def preview_prompt(request: PreviewRequest, *, timeout_s: float) -> RenderedPrompt:
    """Render a question with the engine's own tokenizer and processor, without the engine.

    Most of the seconds allowed go into importing vLLM.

    Raises:
        ConfigurationError: vLLM is not installed.
        ModelError: The model's processor cannot be loaded, or not within the timeout.
    """
    command = [sys.executable, "-P", "-m", "tasks.model.engine.preview_main"]
    environment = engine_environment(request.config)
    try:
        finished = subprocess.run(  # noqa: S603 - our own module
            command,
            input=pickle.dumps(request),
            env=environment,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ModelError(
            f"The processor of {request.config.model} did not load within {timeout_s:g} s; raise model.start_timeout_s."
        ) from None
    if finished.returncode or not finished.stdout:
        last_line = (finished.stderr.decode(errors="replace").strip().splitlines() or ["its process died"])[-1]
        raise ModelError(f"Cannot load the processor of {request.config.model}: {last_line}")
    rendered: RenderedPrompt = pickle.loads(finished.stdout)  # noqa: S301 - from our own process
    return rendered
