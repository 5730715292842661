"""What crosses the boundary between the flow and the engine's process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tasks.domain import Answer

if TYPE_CHECKING:
    from infra.errors import JobError


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How the engine is loaded.

    Attributes:
        model: Folder or hub name.
        revision: Hub revision; None is the default branch.
        dtype: `auto` or a numeric type of vLLM's.
        max_model_len: Longest prompt plus one token; None takes the model's own.
        max_num_seqs: Prompts in one engine step.
        cpu_kv_cache_gib: KV cache on a CPU.
        gpu_memory_utilization: Share of the GPU's memory that the engine takes.
    """

    model: str
    revision: str | None = None
    dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int = 64
    cpu_kv_cache_gib: int = 1
    gpu_memory_utilization: float = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What the engine says of itself once it is loaded.

    Attributes:
        device: The GPU's name, or `cpu`.
        gpus: How many it holds; 0 on a CPU.
        max_model_len: Most tokens of a prompt and its answer.
        start_ms: From the process's first line to the loaded model.
        versions: By package.
    """

    device: str
    gpus: int
    max_model_len: int
    start_ms: float
    versions: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One job as the engine sees it.

    Attributes:
        video_id: Key into the batch's frame files.
        text: The question with its choices laid out.
        system_prompt: None leaves it to the model's chat template.
        choices: The answers, in order.
        scoring: By the choice's letter, or by the first token of its own text.
        others: The same question with its choices in other orders, asked beside it.
    """

    video_id: str
    text: str
    system_prompt: str | None
    choices: tuple[str, ...]
    scoring: Literal["letter", "text"]
    others: tuple[Question, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Questions and the frame files that they are about.

    Attributes:
        frame_files: Arrow IPC bytes by video id.
        questions: Those on one video side by side, so that they share its prefill.
    """

    frame_files: dict[str, bytes] = field(repr=False)
    questions: tuple[Question, ...] = field(repr=False)

    def only(self, questions: tuple[Question, ...]) -> Batch:
        """Take some of the questions, with the frame files that they need."""
        needed = {question.video_id for question in questions}
        files = {video_id: data for video_id, data in self.frame_files.items() if video_id in needed}
        return Batch(frame_files=files, questions=questions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A question without an answer; `code` and `stage` are those of an error in `infra.errors`."""

    code: str
    stage: str
    message: str

    @classmethod
    def of(cls, error: JobError) -> Refusal:
        """Carry an error across the boundary."""
        return cls(code=error.code, stage=error.stage, message=error.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailure:
    """Why the engine could not be loaded."""

    message: str


Reply = Answer | Refusal
