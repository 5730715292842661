"""What crosses the boundary between the flow and the engine's process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from tasks.domain import ONE_VIDEO, Answer, MediaCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reelabel.errors import JobError
    from tasks.domain.media import MediumKind
    from tasks.model.engine.live.messages import LiveReply


class Lifetime(ABC):
    """Starts on entry to a `with` block, and closes on exit."""

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        """Close."""
        self.close()

    @abstractmethod
    def start(self) -> None:
        """Start; return at once."""

    @abstractmethod
    def close(self) -> None:
        """Close; idempotent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How to load the engine.

    Attributes:
        model: Folder or hub name.
        revision: Hub revision; None is the default branch.
        dtype: `auto` or one of vLLM's numeric types.
        max_model_len: Maximum tokens of a prompt and its answer; None uses the model's own limit.
        max_num_seqs: Prompts per engine step; this and the next four are tuned automatically if None.
        max_num_batched_tokens: Tokens per engine step.
        cpu_kv_cache_gib: Size of the KV cache on a CPU.
        gpu_memory_utilization: Fraction of the GPU's memory that the engine uses.
        enforce_eager: Whether to disable compilation and CUDA graphs.
        num_frames: Frames sampled per video; with the next two, an estimate of its tokens for the tuning.
        max_pixels: Maximum pixels per frame.
        size_multiple_px: Side of the square of pixels that one token represents.
        load_format: `auto`; `dummy` uses random weights, to benchmark an architecture, never to label.
        tensor_parallel_size: GPUs that the model is sharded over.
        devices: Those GPUs, as `CUDA_VISIBLE_DEVICES` names them; empty uses all visible ones.
        render_processes: Worker processes that render prompts and videos.
        video_pruning_rate: Fraction of a video's tokens that the model leaves out as redundant; 0 leaves out none.
        media: How many videos and images a question shows at most.
        frames_as_images: Whether a video's frames are shown as images, to a model that takes nothing else.
        chat_template_args: Arguments of the chat template.
        engine_args: Further arguments of vLLM, handed to it unchanged.
        live_sessions: How many live sessions are open at most; 0 takes none.
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
    video_pruning_rate: float = 0.0
    media: MediaCounts = ONE_VIDEO
    frames_as_images: bool = False
    chat_template_args: dict[str, Any] = field(default_factory=dict, hash=False)
    engine_args: dict[str, Any] = field(default_factory=dict, hash=False)
    live_sessions: int = 0

    @property
    def shown(self) -> MediaCounts:
        """How many videos and images a prompt has at most."""
        return MediaCounts(videos=0, images=self.num_frames) if self.frames_as_images else self.media


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What the engine reports once it is loaded.

    Attributes:
        device: The GPU's name, or `cpu`.
        gpus: Number of GPUs that it uses; 0 on a CPU.
        max_model_len: Maximum tokens of a prompt and its answer.
        start_ms: Milliseconds from process start to the loaded model.
        versions: Versions by package.
        takes_audio: Whether live sessions may have audio.
        tuning: The tuned settings, or the protocol in use with a server, in one line.
    """

    device: str
    gpus: int
    max_model_len: int
    start_ms: float
    versions: dict[str, str]
    takes_audio: bool = False
    tuning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTimes:
    """How an engine spent its time, in milliseconds.

    Attributes:
        busy_ms: Computing answers.
        starved_ms: Idle while inputs were being rendered.
        restart_ms: Restarting.
    """

    busy_ms: float = 0.0
    starved_ms: float = 0.0
    restart_ms: float = 0.0

    def __add__(self, other: EngineTimes) -> EngineTimes:
        """Sum both."""
        return EngineTimes(
            busy_ms=self.busy_ms + other.busy_ms,
            starved_ms=self.starved_ms + other.starved_ms,
            restart_ms=self.restart_ms + other.restart_ms,
        )


class ShownFile(NamedTuple):
    """A video or an image that a question shows.

    Attributes:
        file_id: Key into the batch's frame files; that of an image has one frame.
    """

    kind: MediumKind
    file_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One job as the engine sees it.

    Attributes:
        video_id: Key into the batch's frame files; of several videos, the first.
        text: The question with its choices.
        system_prompt: None leaves it to the chat template.
        choices: The answers, in order.
        scoring: Score the choice's letter, or the first token of its text.
        others: The same question with its choices in other orders, asked together with it.
        media: Everything that it shows, in order, if that is more than the video.
    """

    video_id: str
    text: str
    system_prompt: str | None
    choices: tuple[str, ...]
    scoring: Literal["letter", "text"]
    others: tuple[Question, ...] = field(default=(), repr=False)
    media: tuple[ShownFile, ...] = ()

    @property
    def shown(self) -> tuple[ShownFile, ...]:
        """Everything that it shows, in order."""
        return self.media or (ShownFile("video", self.video_id),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Questions, and the frame files of their videos.

    Attributes:
        frame_files: Arrow IPC bytes by the id that questions name them by.
        questions: Questions that show the same are adjacent, so that they share its prefill.
        is_alone: Whether nothing else is to be asked of a server meanwhile, as this may be what ends it.
    """

    frame_files: dict[str, bytes] = field(repr=False)
    questions: tuple[Question, ...] = field(repr=False)
    is_alone: bool = False

    def only(self, questions: tuple[Question, ...]) -> Batch:
        """Return a batch of only these questions, with the frame files that they need."""
        needed = {each.file_id for question in questions for each in question.shown}
        files = {file_id: data for file_id, data in self.frame_files.items() if file_id in needed}
        return Batch(frame_files=files, questions=questions)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionFailure:
    """Why a question has no answer; `code` and `stage` are those of an error in `infra.errors`."""

    code: str
    stage: str
    message: str

    @classmethod
    def of(cls, error: JobError) -> QuestionFailure:
        """Convert an error."""
        return cls(code=error.code, stage=error.stage, message=error.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFailure:
    """Why the engine failed to load, or ended.

    Attributes:
        message: The error.
        is_disk_full: Whether the message is about a full disk, which is no fault of the model or of a question.
    """

    message: str
    is_disk_full: bool = False


Reply = Answer | QuestionFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchGiveUp:
    """A batch whose replies nobody waits for any more."""

    number: int


class QuestionRef(NamedTuple):
    """Identifies a question: the number of its batch, and its index there."""

    batch: int
    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReplies:
    """What the engine's process sends after each step.

    Attributes:
        replies: Replies to the questions that ended.
        times: Time spent on the step, and waiting before it.
        live: Replies to the requests of live sessions.
    """

    replies: Sequence[tuple[QuestionRef, Reply]]
    times: EngineTimes
    live: Sequence[tuple[int, LiveReply]] = ()
