"""What crosses the boundary between the flow and the engine's process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

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
        max_num_seqs: Prompts in one engine step; this and the next four are chosen where they are None.
        max_num_batched_tokens: Tokens in one engine step.
        cpu_kv_cache_gib: KV cache on a CPU.
        gpu_memory_utilization: Share of the GPU's memory that the engine takes.
        enforce_eager: Whether the model is neither compiled nor captured in graphs.
        num_frames: Of a video, as it is sampled; what is chosen goes by its tokens.
        max_pixels: Most of one frame.
        size_multiple_px: Side of the square that a token stands for.
        load_format: `auto`; `dummy` makes weights up, fit to measure an architecture, never to label.
        tensor_parallel_size: GPUs that the model is spread over.
        devices: Those GPUs, as `CUDA_VISIBLE_DEVICES` names them; empty leaves all that are visible.
        render_processes: Processes in which prompts and videos are laid out for the engine.
    """

    model: str
    revision: str | None = None
    dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    cpu_kv_cache_gib: int | None = None
    gpu_memory_utilization: float | None = None
    enforce_eager: bool | None = None
    num_frames: int = 16
    max_pixels: int = 602_112
    size_multiple_px: int = 28
    load_format: Literal["auto", "dummy"] = "auto"
    tensor_parallel_size: int = 1
    devices: tuple[str, ...] = ()
    render_processes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What the engine says of itself once it is loaded.

    Attributes:
        device: The GPU's name, or `cpu`.
        gpus: How many it holds; 0 on a CPU.
        max_model_len: Most tokens of a prompt and its answer.
        start_ms: From the process's first line to the loaded model.
        versions: By package.
        tuning: What was chosen of its settings, or how a server is asked, in a line.
    """

    device: str
    gpus: int
    max_model_len: int
    start_ms: float
    versions: dict[str, str]
    tuning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTimes:
    """What an engine did with its time; milliseconds.

    Attributes:
        busy_ms: Computing answers.
        waited_ms: Idle, with something being rendered for it.
        restart_ms: Being started again.
    """

    busy_ms: float = 0.0
    waited_ms: float = 0.0
    restart_ms: float = 0.0

    def __add__(self, other: EngineTimes) -> EngineTimes:
        """Add up."""
        return EngineTimes(
            busy_ms=self.busy_ms + other.busy_ms,
            waited_ms=self.waited_ms + other.waited_ms,
            restart_ms=self.restart_ms + other.restart_ms,
        )


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
class EngineFailure:
    """Why the engine could not be loaded, or ended."""

    message: str


Reply = Answer | Refusal


class Ticket(NamedTuple):
    """Where a question came from: the number of its batch, and its place there."""

    batch: int
    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies:
    """What the engine's process says after each step.

    Attributes:
        replies: Questions that ended.
        times: Of the step, and of what went before it.
    """

    replies: list[tuple[Ticket, Reply]]
    times: EngineTimes
