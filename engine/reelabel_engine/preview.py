"""A prompt as the model takes it, for someone who wants to read it; and what is needed to render it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reelabel.integrations.vllm.video_input import Video
    from reelabel_engine.protocol import EngineConfig, Question, QuestionFailure


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
