"""What crosses the boundary between the application and the engine's process, and how it is encoded.

Each message is one msgpack value, decoded by its declared types. Nothing is unpickled, as the two may run in different
environments: with other versions of Python and of every package but this one. Arrays are a map of `dtype`, `shape` and
`data`. Fields that a receiver does not know are ignored; any other change of a message takes another `PROTOCOL`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from reelabel_engine.live.items import Item

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from reelabel.errors import JobError

MediumKind = Literal["video", "image"]
FinishReason = Literal["stop", "length"]
_MAX_FRAMES = 1024  # of a video, however it is sampled


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How to load the engine.

    Attributes:
        model: Folder or hub name.
        revision: Hub revision; None is the default branch.
        dtype: `auto` or one of vLLM's numeric types.
        load_format: `auto`; `dummy` uses random weights, to benchmark an architecture, never to label.
        tensor_parallel_size: GPUs that the model is sharded over.
        devices: Those GPUs, as `CUDA_VISIBLE_DEVICES` names them; empty uses all visible ones.
        render_processes: Worker processes that render prompts and videos.
        video_pruning_rate: Fraction of a video's tokens that the model leaves out as redundant; 0 leaves out none.
        max_videos: How many videos a question shows at most.
        max_images: How many images.
        frames_as_images: Whether a video's frames are shown as images, to a model that takes nothing else.
        chat_template_args: Arguments of the chat template.
        engine_args: Further arguments of vLLM, handed to it unchanged.
        live_sessions: How many live sessions are open at most; 0 takes none.
    """

    model: str
    revision: str | None = None
    dtype: str = "auto"
    load_format: Literal["auto", "dummy"] = "auto"
    tensor_parallel_size: int = 1
    devices: tuple[str, ...] = ()
    render_processes: int = 1
    video_pruning_rate: float = 0.0
    max_videos: int = 1
    max_images: int = 0
    frames_as_images: bool = False
    chat_template_args: dict[str, Any] = field(default_factory=dict, hash=False)
    engine_args: dict[str, Any] = field(default_factory=dict, hash=False)
    live_sessions: int = 0

    @property
    def shown_videos(self) -> int:
        return 0 if self.frames_as_images else self.max_videos

    @property
    def shown_images(self) -> int:
        return _MAX_FRAMES if self.frames_as_images else self.max_images


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
        tuning: The engine's settings, or the protocol in use with a server, in one line.
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
        waiting_for_input_ms: Idle while inputs were being rendered.
        restart_ms: Restarting.
    """

    busy_ms: float = 0.0
    waiting_for_input_ms: float = 0.0
    restart_ms: float = 0.0

    def __add__(self, other: EngineTimes) -> EngineTimes:
        return EngineTimes(
            busy_ms=self.busy_ms + other.busy_ms,
            waiting_for_input_ms=self.waiting_for_input_ms + other.waiting_for_input_ms,
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
        choices: The answers, in order; empty for an answer in words.
        scoring: Score the choice's letter, or the first token of its text.
        max_tokens: Of an answer in words; one with choices has one token.
        schema: JSON schema, as text, of an answer in words; None leaves its words free.
        others: The same question with its choices in other orders, asked together with it.
        media: Everything that it shows, in order, if that is more than the video.
    """

    video_id: str
    text: str
    system_prompt: str | None
    choices: tuple[str, ...]
    scoring: Literal["letter", "text"] = "letter"
    max_tokens: int = 1
    schema: str | None = None
    others: tuple[Question, ...] = field(default=(), repr=False)
    media: tuple[ShownFile, ...] = ()

    @property
    def shown(self) -> tuple[ShownFile, ...]:
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
class EncoderConfig:
    """How to load an image-text encoder.

    Attributes:
        model: Folder or hub name.
        revision: Hub revision; None for a folder.
        devices: GPUs, as `CUDA_VISIBLE_DEVICES` names them; empty uses what is visible, or the CPU.
        batch_frames: Frames that the image encoder is given at once.
    """

    model: str
    revision: str | None = None
    devices: tuple[str, ...] = ()
    batch_frames: int = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderInfo:
    """What an encoder reports once it is loaded.

    Attributes:
        device: The GPU's name, or `cpu`.
        gpus: Number of GPUs in use; 0 on a CPU.
        dtype: Numeric type of the weights.
        dimensions: Size of a vector, D.
        size_px: Side of the square that frames are resized to, or of one of as many pixels.
        max_tokens: Tokens that the text encoder takes, special ones included.
        scale: Factor that turns a cosine into a logit, to which `bias` is added; None if the model has none.
    """

    device: str
    gpus: int
    dtype: str
    dimensions: int
    size_px: int
    max_tokens: int
    scale: float | None
    bias: float | None
    start_ms: float
    versions: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveQuery:
    """A question about a prefix.

    Attributes:
        text: The question with its choices, if it has any.
        turns: Earlier questions and their answers, which follow the prefix before the question.
        choices: The answers, in order; empty for an answer in free text, to which all that follows applies.
        temperature: 0 takes the most probable token each time.
        speaks: Answer in speech too; only servers do.
    """

    text: str
    turns: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    choices: tuple[str, ...] = ()
    scoring: Literal["letter", "text"] = "letter"
    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    speaks: bool = False
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
    """A prefix to read, or a question about one.

    Attributes:
        number: Unique within one life of the engine.
        session: The session's name.
        salt: Keeps what is cached for the session from others.
        system_prompt: None leaves it to the chat template.
        hashes: Of all items of the prefix, in order.
        items: Those that the engine's process does not have yet, by hash.
        fresh: How many of the last items the model has probably not read yet.
        query: None reads the prefix.
        has_audio: Whether the session has had audio.
    """

    number: int
    session: str
    salt: str
    system_prompt: str | None
    hashes: tuple[str, ...]
    items: dict[str, Item]
    fresh: int
    query: LiveQuery | None = None
    has_audio: bool = False


class LiveDrop(_Message, frozen=True):
    """Items that no prompt of a session will have again; None are all of them."""

    session: str
    hashes: tuple[str, ...] | None


class Cancel(_Message, frozen=True):
    """A request whose replies nobody waits for any more."""

    number: int


class Keep(_Message, frozen=True):
    """The last message of a client that leaves a loaded engine to the next one; the reply is `Kept`.

    Attributes:
        seconds: For so long; then the engine ends.
        facts_path: File in which it says, as JSON, where it waits.
    """

    number: int
    seconds: float
    facts_path: str


class EmbedImages(_Message, frozen=True):
    """RGB pixels of several videos, each of shape (N, H, W, 3); the reply is `Vectors` of all frames."""

    number: int
    videos: tuple[npt.NDArray[np.uint8], ...]


class EmbedTexts(_Message, frozen=True):
    """Texts; the reply is `Vectors`."""

    number: int
    texts: tuple[str, ...]


class PreviewRequest(_Message, frozen=True):
    """A question that is to be rendered by a process that loads no weights; the reply is `RenderedPrompt`.

    Attributes:
        media: Frames and metadata of what it shows, in order; see `reelabel.integrations.vllm.video_input`.
    """

    config: EngineConfig
    question: Question
    media: tuple[tuple[npt.NDArray[np.uint8], dict[str, Any]], ...]


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
    """Why the process failed to load, or ended.

    Attributes:
        message: The error.
        is_disk_full: Whether the message is about a full disk, which is no fault of the model or of a question.
    """

    message: str
    is_disk_full: bool = False


class QuestionAnswer(_Message, frozen=True):
    """What the model answers to one question.

    Attributes:
        probabilities: One per choice, summing to one; empty for an answer in words.
        choice_mass: Probability of all choices together before they were normalised; next to 0 if the model would have
            said something else.
        text: An answer in words, or as JSON.
        finish_reason: Why the words ended: the model was done, or `max_tokens` were reached.
        output_tokens: Tokens of the words.
        prompt_tokens: Tokens of the rendered prompt, including the video.
        cached_tokens: Those of them served from the prefix cache.
        preprocess_ms: Milliseconds of the model's processor for this question.
        inference_ms: Its share of the engine's milliseconds.
    """

    probabilities: tuple[float, ...]
    choice_mass: float | None
    prompt_tokens: int
    cached_tokens: int
    preprocess_ms: float
    inference_ms: float
    text: str = ""
    finish_reason: FinishReason = "stop"
    output_tokens: int = 0


class QuestionFailure(_Message, frozen=True):
    """Why a question has no answer; `code` and `stage` are those of an error."""

    code: str
    stage: str
    message: str

    @classmethod
    def of(cls, error: JobError) -> QuestionFailure:
        return cls(code=error.code, stage=error.stage, message=error.message)


QuestionReply = QuestionAnswer | QuestionFailure


class LiveText(_Message, frozen=True):
    """The next tokens of an answer; the text may be empty, as some tokens are parts of a character."""

    text: str


class LiveDone(_Message, frozen=True):
    """A request of a live session has ended."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int = 0
    finish_reason: FinishReason = "stop"
    probabilities: tuple[float, ...] = ()


LiveReply = LiveText | LiveDone | QuestionFailure


class RequestRef(NamedTuple):
    """The number of a request, and the place of a question in its batch; 0 in a live session."""

    number: int
    place: int = 0


class StepReplies(_Message, frozen=True):
    """What the engine's process sends after each step.

    Attributes:
        replies: Replies to the questions that ended, and to live sessions.
        times: Time spent on the step, and waiting before it.
    """

    replies: tuple[tuple[RequestRef, QuestionAnswer | QuestionFailure | LiveText | LiveDone], ...]
    times: EngineTimes


class Vectors(_Message, frozen=True):
    """One vector for each frame or text; shape (N, D). Of texts, also how many tokens each has."""

    number: int
    vectors: npt.NDArray[np.float32]
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSpan:
    """A run of the prompt.

    Attributes:
        text: Decoded text, including special tokens; a single token if it repeats.
        repeats: Number of repetitions.
    """

    text: str
    repeats: int = 1


class RenderedPrompt(_Message, frozen=True):
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
        return "".join(run.text * run.repeats for run in self.runs)


ToEngine = LoadEngine | AskBatch | LiveRequest | LiveDrop | Cancel | Keep
ToEncoder = LoadEncoder | EmbedImages | EmbedTexts | Cancel
Request = ToEngine | ToEncoder | PreviewRequest
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
    """Make sure that a part of a message can be sent, and costs nothing but itself.

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
