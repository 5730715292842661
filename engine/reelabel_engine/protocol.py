"""The messages between the application and the engine's process, and their encoding.

Each message is one msgpack value, decoded by its declared types. Nothing is unpickled, as the two may run in different
environments: with other versions of Python and of every package but this one. Arrays are a map of `dtype`, `shape` and
`data`. Fields that a receiver does not know are ignored; any other change of a message takes another `PROTOCOL`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from reelabel_engine.live_items import Item

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from reelabel.errors import JobError

MediumKind = Literal["video", "image"]
FinishReason = Literal["stop", "length"]
_MAX_FRAMES = 1024  # of a video, however it is sampled
MAX_TOKENS = 2**24  # beyond any model's context, and sums of them fit into their columns
# What an engine reports becomes rows: a number beyond these, or NaN, makes its message invalid.
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Probability = Annotated[float, msgspec.Meta(ge=0, le=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How to load the engine."""

    model: str  # a folder or hub name
    revision: str | None = None  # hub revision; None is the default branch
    adapter: str | None = None  # folder of a LoRA adapter, which is part of every answer
    adapter_fingerprint: str = ""  # of that folder; see `fingerprint_folder`
    dtype: str = "auto"  # `auto` or one of vLLM's numeric types
    load_format: Literal["auto", "dummy"] = "auto"  # `dummy`: random weights, to benchmark an architecture
    tensor_parallel_size: int = 1  # GPUs that the model is sharded over
    devices: tuple[str, ...] = ()  # those GPUs, as `CUDA_VISIBLE_DEVICES` names them; empty uses all visible ones
    render_processes: int = 1  # worker processes that render prompts and videos
    video_pruning_rate: float = 0.0  # fraction of a video's tokens that are left out as redundant
    max_videos: int = 1  # how many videos a question shows at most
    max_images: int = 0  # the same for images
    frames_as_images: bool = False  # whether a video's frames are shown as images, to a model that takes nothing else
    chat_template_args: dict[str, Any] = field(default_factory=dict, hash=False)
    engine_args: dict[str, Any] = field(default_factory=dict, hash=False)  # of vLLM, handed to it unchanged
    live_sessions: int = 0  # how many live sessions may be open at a time; 0 for none

    @property
    def name(self) -> str:  # in messages: the folder or hub name that was chosen
        return self.adapter or self.model

    @property
    def shown_videos(self) -> int:
        return 0 if self.frames_as_images else self.max_videos

    @property
    def shown_images(self) -> int:
        return _MAX_FRAMES if self.frames_as_images else self.max_images


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What the engine reports once it is loaded."""

    device: str  # the GPU's name, or `cpu`
    gpus: Count  # 0 on a CPU
    max_model_len: Count  # maximum tokens of a prompt and its answer
    start_ms: Milliseconds  # from process start to the loaded model
    versions: dict[str, str]
    takes_audio: bool = False  # of live sessions
    tuning: str = ""  # the engine's settings, or the protocol in use with a server, in one line


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTimes:
    """How an engine spent its time, in milliseconds."""

    busy_ms: Milliseconds = 0.0  # computing answers
    waiting_for_input_ms: Milliseconds = 0.0  # idle while inputs were being rendered
    restart_ms: Milliseconds = 0.0

    def __add__(self, other: EngineTimes) -> EngineTimes:
        return EngineTimes(
            busy_ms=self.busy_ms + other.busy_ms,
            waiting_for_input_ms=self.waiting_for_input_ms + other.waiting_for_input_ms,
            restart_ms=self.restart_ms + other.restart_ms,
        )


class QuestionMedium(NamedTuple):
    """A video or an image that a question shows."""

    kind: MediumKind
    file_id: str  # key into the batch's frame files; that of an image has one frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One job as the engine sees it."""

    video_id: str  # key into the batch's frame files; of several videos, the first
    text: str
    system_prompt: str | None  # None leaves it to the chat template
    choices: tuple[str, ...]  # the answers, in order; empty for an answer in words
    scoring: Literal["letter", "text"] = "letter"  # score the choice's letter, or the first token of its text
    max_tokens: int = 1  # of an answer in words; one with choices has one token
    schema: str | None = None  # JSON schema, as text, of an answer in words; None leaves its words free
    permutations: tuple[Question, ...] = field(
        default=(), repr=False
    )  # with its choices in other orders, asked with it
    media: tuple[QuestionMedium, ...] = ()  # everything that it shows, in order, if that is more than the video

    @property
    def shown(self) -> tuple[QuestionMedium, ...]:
        return self.media or (QuestionMedium("video", self.video_id),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Questions, and the frame files of their videos."""

    frame_files: dict[str, bytes] = field(repr=False)  # Arrow IPC bytes by the id that questions name them by
    questions: tuple[Question, ...] = field(repr=False)  # those that show the same are adjacent: they share its prefill
    is_alone: bool = False  # whether a server gets nothing else meanwhile, because these may crash it

    def only(self, questions: tuple[Question, ...]) -> Batch:
        """Return a batch of only these questions, with the frame files that they need."""
        needed = {each.file_id for question in questions for each in question.shown}
        files = {file_id: data for file_id, data in self.frame_files.items() if file_id in needed}
        return Batch(frame_files=files, questions=questions)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """How to load an image-text encoder."""

    model: str  # a folder or hub name
    revision: str | None = None  # hub revision; None for a folder
    devices: tuple[str, ...] = ()  # GPUs, as `CUDA_VISIBLE_DEVICES` names them; empty uses what is visible, or the CPU
    batch_frames: int = 128  # frames that the image encoder is given at once

    @property
    def name(self) -> str:
        return self.model


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderInfo:
    """What an encoder reports once it is loaded."""

    device: str  # the GPU's name, or `cpu`
    gpus: int  # 0 on a CPU
    dtype: str  # of the weights
    dimensions: int  # size of a vector, D
    size_px: int  # side of the square that frames are resized to, or of one of as many pixels
    max_tokens: int  # tokens that the text encoder takes, special ones included
    scale: float | None  # factor that turns a cosine into a logit, to which `bias` is added; None if the model has none
    bias: float | None
    start_ms: float
    versions: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveQuery:
    """A question about a prefix."""

    text: str  # the question with its choices, if it has any
    turns: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # earlier questions and their answers
    choices: tuple[str, ...] = ()  # in order; empty for an answer in words, to which all that follows applies
    scoring: Literal["letter", "text"] = "letter"
    max_tokens: int = 256
    temperature: float = 0.0  # 0 takes the most probable token each time
    top_p: float = 1.0
    seed: int | None = None
    produces_speech: bool = False  # answer in speech too; only servers do
    voice: str | None = None


class _Message(msgspec.Struct, frozen=True, tag=True):
    """A message, or a part of one that may be of several kinds."""


class LoadEngine(_Message, frozen=True):
    """The first message: what is to be loaded. The reply is `EngineLoaded` or `EngineFailure`."""

    config: EngineConfig


class LoadEncoder(_Message, frozen=True):
    """The first message to an encoder's process. The reply is `EncoderLoaded` or `EngineFailure`."""

    config: EncoderConfig


class AskBatch(_Message, frozen=True):
    """Questions; the replies come one by one, in `StepReplies`."""

    number: int
    batch: Batch


class LiveRequest(_Message, frozen=True):
    """A prefix to prefill, or a question about one."""

    number: int  # unique within one connection to the engine
    session: str
    salt: str  # keeps what is cached for the session from others
    system_prompt: str | None  # None leaves it to the chat template
    hashes: tuple[str, ...]  # of all items of the prefix, in order
    items: dict[str, Item]  # those that the engine's process does not have yet, by hash
    fresh: int  # how many of the last items have probably not been prefilled yet
    query: LiveQuery | None = None  # None only prefills the prefix
    has_audio: bool = False  # whether the session has had audio


class LiveDrop(_Message, frozen=True):
    """Items that no later prompt of a session contains; None for all of them."""

    session: str
    hashes: tuple[str, ...] | None


class Cancel(_Message, frozen=True):
    """Ends a request whose replies are no longer wanted."""

    number: int


class Keep(_Message, frozen=True):
    """The last message of a client that leaves a loaded engine to the next one; the reply is `Kept`."""

    number: int
    seconds: float  # how long the engine waits before it ends
    facts_path: str  # JSON file in which the engine states where it waits


class EmbedImages(_Message, frozen=True):
    """RGB pixels of several videos, each of shape (N, H, W, 3); the reply is `Vectors` of all frames."""

    number: int
    videos: tuple[npt.NDArray[np.uint8], ...]


class EmbedTexts(_Message, frozen=True):
    """Texts; the reply is `Vectors`."""

    number: int
    texts: tuple[str, ...]


class PreviewRequest(_Message, frozen=True):
    """A question that is to be rendered by a process that loads no weights; the reply is `RenderedPrompt`."""

    config: EngineConfig
    question: Question
    media: tuple[tuple[npt.NDArray[np.uint8], dict[str, Any]], ...]  # as of `video_input`, in order


class EngineLoaded(_Message, frozen=True):
    """The engine takes requests."""

    info: EngineInfo


class EncoderLoaded(_Message, frozen=True):
    """The encoder takes requests."""

    info: EncoderInfo


class Kept(_Message, frozen=True):
    """The engine waits for the next client."""

    number: int


class EngineFailure(_Message, frozen=True):
    """Why the process failed to load, or ended."""

    message: str
    is_disk_full: bool = False  # about a full disk, which is no fault of the model or of a question


class QuestionAnswer(_Message, frozen=True):
    """What the model answers to one question."""

    probabilities: tuple[Probability, ...]  # one per choice, summing to one; empty for an answer in words
    choice_mass: Probability | None  # of all choices, before normalising: near 0 if it would have said something else
    prompt_tokens: Count  # of the rendered prompt, including the video
    cached_tokens: Count  # those of them served from the prefix cache
    preprocess_ms: Milliseconds  # of the model's processor for this question
    inference_ms: Milliseconds  # its share of the engine's milliseconds
    text: str = ""  # an answer in words, or as JSON
    finish_reason: FinishReason = "stop"  # why the words ended: the model was done, or `max_tokens` were reached
    output_tokens: Count = 0  # of an answer in words


class Rejected(_Message, frozen=True):
    """Why a question has no answer; `code` and `stage` are those of an error."""

    code: str
    stage: str
    message: str

    @classmethod
    def of(cls, error: JobError) -> Rejected:
        return cls(code=error.code, stage=error.stage, message=error.message)


QuestionReply = QuestionAnswer | Rejected


class LiveText(_Message, frozen=True):
    """The next tokens of an answer; the text may be empty, as some tokens are parts of a character."""

    text: str


class LiveDone(_Message, frozen=True):
    """A request of a live session has ended."""

    prompt_tokens: Count
    cached_tokens: Count
    output_tokens: Count = 0
    finish_reason: FinishReason = "stop"
    probabilities: tuple[Probability, ...] = ()


LiveReply = LiveText | LiveDone | Rejected


class RequestRef(NamedTuple):
    """The number of a request, and the slot of a question in its batch; 0 in a live session."""

    number: int
    slot: int = 0


class StepReplies(_Message, frozen=True):
    """What the engine's process sends after each step."""

    replies: tuple[tuple[RequestRef, QuestionAnswer | Rejected | LiveText | LiveDone], ...]
    times: EngineTimes  # time spent on the step, and waiting before it


class Vectors(_Message, frozen=True):
    """One vector for each frame or text; shape (N, D). Of texts, also how many tokens each has."""

    number: int
    vectors: npt.NDArray[np.float32]
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSpan:
    """A run of the prompt."""

    text: str  # decoded text, including special tokens; a single token if it repeats
    repeats: int = 1


class RenderedPrompt(_Message, frozen=True):
    """A prompt as the model takes it."""

    runs: tuple[PromptSpan, ...]  # the whole prompt in order
    tokens: int | None  # tokens of the whole prompt; None if it is too long to be counted
    video_tokens: int | None  # those of them that represent videos and images
    max_model_len: int  # maximum tokens of a prompt and its answer
    choices: tuple[dict[int, str], ...]  # token ids and texts per choice; empty if the choices cannot be told apart
    refusals: tuple[Rejected, ...]  # why the engine would not answer

    @property
    def text(self) -> str:
        return "".join(run.text * run.repeats for run in self.runs)


ToEngine = LoadEngine | AskBatch | LiveRequest | LiveDrop | Keep
ToEncoder = LoadEncoder | EmbedImages | EmbedTexts
Request = ToEngine | ToEncoder | Cancel | PreviewRequest
Reply = EngineLoaded | EncoderLoaded | EngineFailure | StepReplies | Kept | Vectors | RenderedPrompt

_DTYPES = ("uint8", "int16", "float32")
_MAX_DIMENSIONS = 4


def _encode_array(value: object) -> dict[str, Any]:
    if not isinstance(value, np.ndarray) or str(value.dtype) not in _DTYPES:
        raise TypeError(f"a {type(value).__name__} is no part of a message")
    data = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
    return {"dtype": str(value.dtype), "shape": value.shape, "data": data}


def _decode_array(_kind: type, value: dict[str, Any]) -> npt.NDArray[Any]:
    shape, dtype, data = [int(size) for size in value["shape"]], value["dtype"], value["data"]
    if dtype not in _DTYPES or len(shape) > _MAX_DIMENSIONS or min(shape, default=0) < 0:
        raise ValueError("not an array")
    if len(data) != prod(shape) * np.dtype(dtype).itemsize:
        raise ValueError("an array is shorter or longer than its shape says")
    return np.frombuffer(data, dtype).reshape(shape)


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_array)
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request, dec_hook=_decode_array)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply, dec_hook=_decode_array)


def encode(message: Request | Reply) -> bytes:
    """Encode a message; a `TypeError` or `ValueError` says what of it cannot be."""
    return _encoder.encode(message)


def check(part: Question | LiveQuery) -> None:
    """Make sure that a part of a message can be encoded and decoded, as the whole message would fail with it.

    Raises:
        TypeError: A field has a value that no message has.
        ValueError: A field has another type than is declared; a text has no encoding.
    """
    msgspec.msgpack.decode(_encoder.encode(part), type=type(part))


def decode_request(data: bytes) -> Request:
    """Decode what the application sends; a `ValueError` says why it is no request."""
    return _requests.decode(data)


def decode_reply(data: bytes) -> Reply:
    """Decode what the engine's process sends; a `ValueError` says why it is no reply."""
    return _replies.decode(data)


def send(connection: Connection, message: Reply) -> None:
    connection.send_bytes(encode(message))


def receive(connection: Connection) -> Request:
    """Receive a request; raises an `EOFError` if the other end is closed, else as `decode_request` does."""
    return decode_request(connection.recv_bytes())
