"""Messages of clients of live sessions: a superset of vLLM-Omni's protocol of `/v1/video/chat/stream`.

Names, fields and defaults are those of https://docs.vllm.ai/projects/vllm-omni/en/stable/serving/video_stream_api/, so
its clients work unchanged. Unknown fields are ignored, and named in a notice.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from infra.text_bounds import MAX_CHOICES, Choice, Id, Words
from infra.validation import describe_fault, too_intricate, too_many_faults
from reelabel.errors import ReelabelError
from reelabel.text import escape_controls

MAX_STAGES = 64
MAX_WAITING = 64  # queries of a session
MAX_MESSAGE_BYTES = 16 * 1024**2  # a frame in base64 is a third longer
_MAX_QUOTED = 80  # characters of a client's text in an error message
_MAX_UNKNOWN = 10  # fields reported to a client at once
_FOREVER_S = 1e9

Base64: TypeAlias = Annotated[str, Field(min_length=1, json_schema_extra={"contentEncoding": "base64"})]
ErrorCode: TypeAlias = Literal[
    "invalid_message",
    "unexpected_message",
    "config_timeout",
    "audio_unsupported",
    "audio_refused",
    "frame_unreadable",
    "frame_too_large",
    "no_frames",
    "too_many_queries",
    "prompt_too_long",
    "query_refused",
    "query_failed",
    "engine_lost",
    "cancelled",
    "deadline_exceeded",
    "too_many_sessions",
    "limit_reached",
    "idle_timeout",
    "resume_refused",
    "unavailable",
    "internal",
]


class ProtocolError(ReelabelError):
    """A message is invalid, or cannot be accepted now; a fatal error ends the session."""

    code: ErrorCode  # type: ignore[misc]  # of this refusal, not of the class

    def __init__(self, message: str, *, code: ErrorCode, is_fatal: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_fatal = is_fatal


class _Message(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


class Sampling(_Message):
    """How an answer in words is sampled."""

    temperature: float = Field(0.0, ge=0, le=10, description="0 always takes the most probable token.")
    top_p: float = Field(1.0, gt=0, le=1)
    max_tokens: int = Field(256, ge=1, le=4096, description="Maximum tokens of an answer.")
    seed: int | None = Field(None, ge=0, le=2**63 - 1, description="Makes answers reproducible.")


class SessionConfig(_Message):
    """Begins a session; the first message of a connection, unless it resumes one."""

    type: Literal["session.config"]
    model: Id | None = Field(None, description="Name of the served model; null accepts any.")
    modalities: tuple[Literal["text", "audio"], ...] = Field(
        ("text",),
        min_length=1,
        max_length=2,
        description="A model that does not speak refuses `audio` alone, and otherwise answers in text. "
        "Speech is also sent as text.",
    )
    system_prompt: Words | None = Field(
        None, description="System prompt, before the first frame; defaults to the server's."
    )
    sampling: Sampling | None = Field(None, description="Sampling of answers in words; a query may have its own.")
    sampling_params_list: tuple[Sampling | dict[str, Any], ...] | None = Field(
        None,
        max_length=MAX_STAGES,
        fail_fast=True,
        description="The first entry is `sampling`; others, of stages that speak, are ignored.",
    )
    window: int | None = Field(
        None,
        ge=2,
        le=100_000,
        description="A query sees at least this many of the last kept frames, and fewer than twice as many.",
    )
    window_s: float | None = Field(None, gt=0, le=_FOREVER_S, description="The same in seconds, in place of `window`.")
    sink: int = Field(
        4,
        validation_alias=AliasChoices("sink", "sink_frames"),
        ge=0,
        le=1024,
        description="Number of first kept frames that are never evicted: by default about 512 tokens, at the size "
        "to which frames are scaled by default. Of a small `max_frames`, at most a quarter.",
    )
    num_frames: int | None = Field(
        None,
        validation_alias=AliasChoices("num_frames", "num_sample_frames"),
        ge=1,
        le=128,
        description="A query sees at most this many of the window's frames, evenly spread; null for all.",
    )
    max_frames: int | None = Field(
        None, ge=1, le=256, description="Maximum frames that a query sees, with the sink, in place of `window`."
    )
    enable_frame_filter: bool = Field(
        True,
        validation_alias=AliasChoices("enable_frame_filter", "evs_enabled"),
        description="Drop frames that are similar to the last kept one.",
    )
    frame_filter_threshold: float = Field(
        0.95,
        validation_alias=AliasChoices("frame_filter_threshold", "evs_threshold"),
        ge=0,
        le=1,
        description="Similarity, as measured by `drop_similar`, above which a frame is dropped.",
    )
    use_audio_in_video: bool = Field(
        True, description="Whether the model gets the audio chunks among the frames; if false, they are left out."
    )
    speaker: Id | None = Field(None, description="Voice of a model that speaks.")
    speech_event: Literal["response.audio", "response.audio.delta", "response.output_audio.delta"] | None = Field(
        None,
        description="How pieces of speech are sent: announced by this event, as binary messages "
        "(`response.audio`), or in it, as base64. The default depends on the client's version of the protocol.",
    )
    persistent: Any = Field(None, description="Accepted: frames always stay in the KV cache between queries.")
    history: int = Field(
        8,
        ge=0,
        le=32,
        description="A question in words sees this many of the last ones, with their answers. Questions with "
        "choices neither see others nor are seen.",
    )
    deadline_s: float | None = Field(
        None, gt=0, le=86_400, description="Seconds after which a query that is not answered ends."
    )

    @model_validator(mode="after")
    def _check(self) -> SessionConfig:
        if sum(value is not None for value in (self.window, self.window_s, self.max_frames)) > 1:
            raise ValueError("only one of window, window_s and max_frames can be given")
        if self.sampling and self.sampling_params_list:
            raise ValueError("only one of sampling and sampling_params_list can be given")
        if self.sampling_params_list and not isinstance(self.sampling_params_list[0], Sampling):
            known = ", ".join(Sampling.model_fields)
            raise ValueError(f"the first entry of sampling_params_list may have {known}, in their ranges")
        return self

    @property
    def is_newer(self) -> bool:
        """Whether its client uses the newer protocol, in which sessions are persistent."""
        return self.persistent is not None or "refresh_at_position" in (self.model_extra or ())

    @property
    def answers(self) -> Sampling:
        if self.sampling_params_list and isinstance(first := self.sampling_params_list[0], Sampling):
            return first
        return self.sampling or Sampling()


class SessionResume(_Message):
    """Continues a session whose connection was lost; the first message of the new connection."""

    type: Literal["session.resume"]
    session_id: Id
    resume_token: Id = Field(description="The token from `session.created`.")
    last_seq: int = Field(ge=0, description="`seq` of the last event received; later ones are sent again.")


class VideoFrame(_Message):
    """A frame; without `data`, it gives the time and the id of the binary message that follows."""

    type: Literal["video.frame"]
    data: Base64 | None = Field(None, description="JPEG, PNG, WebP, BMP or GIF, in base64.")
    frame_id: Id | None = Field(None, description="Repeated in the events about the frame.")
    time_s: FiniteFloat | None = Field(
        None, ge=-_FOREVER_S, le=_FOREVER_S * 10, description="Time of the frame; defaults to its time of arrival."
    )
    pts_ms: FiniteFloat | None = Field(
        None, ge=-_FOREVER_S * 1e3, le=_FOREVER_S * 1e4, description="The same in milliseconds."
    )
    source_pts_ms: float | None = Field(None, description="Accepted and ignored.")
    capture_ts_ms: float | None = Field(None, description="Repeated in the events about the frame.")
    quality_profile: Id | None = Field(None, description="Accepted and ignored.")

    @model_validator(mode="after")
    def _check(self) -> VideoFrame:
        if self.time_s is not None and self.pts_ms is not None:
            raise ValueError("only one of time_s and pts_ms can be given")
        return self

    @property
    def own_time_s(self) -> float | None:
        """Its time in seconds on the client's clock; None if it has none."""
        return self.time_s if self.pts_ms is None else self.pts_ms / 1e3


class AudioChunk(_Message):
    """Audio: 16-bit little-endian PCM, one channel of 16 kHz; without `data`, it announces a binary message with it.

    It is not acknowledged, as published; an `error` reports a chunk that is refused.
    """

    type: Literal["audio.chunk"]
    data: Base64 | None = Field(None, description="At most 30 seconds, in base64.")
    time_s: FiniteFloat | None = Field(
        None,
        ge=-_FOREVER_S,
        le=_FOREVER_S * 10,
        description="Time of the first sample; by default, the chunk ends when it arrives.",
    )


class VideoQuery(_Message):
    """A question about the frames so far; it is answered in its turn, and never dropped."""

    type: Literal["video.query"]
    text: Words
    choices: tuple[Choice, ...] | None = Field(
        None,
        min_length=2,
        max_length=MAX_CHOICES,
        fail_fast=True,
        description="The choices, one of which a single token selects; null for an answer in words.",
    )
    query_id: Id | None = Field(None, description="Repeated in the events about the query.")
    sampling: Sampling | None = Field(None, description="Replaces the session's sampling.")
    audio_data: Base64 | None = Field(None, description="One more chunk of audio, before the question.")
    interrupt: bool = Field(False, description="First cancel all queries that wait or are being answered.")
    again: bool = Field(
        False,
        description="Sent before, on a connection that was lost; ignored if the same question has arrived under its "
        "`query_id`.",
    )
    deadline_s: float | None = Field(None, gt=0, le=86_400, description="Replaces the session's deadline.")
    every_s: float | None = Field(
        None,
        ge=0.1,
        le=86_400,
        description="Ask again each time that the clock of the frames has advanced by this many seconds, until the "
        "question is cancelled by its `query_id`. With `on_change`, 1 second by default.",
    )
    on_change: bool = Field(
        False, description="Ask again as with `every_s`, but answer only if the most probable choice changes."
    )
    change_margin: float | None = Field(
        None,
        ge=0,
        le=1,
        description="With `on_change`: by how much the new choice must be more probable than the one answered "
        "last; by default 0.2.",
    )

    @property
    def is_standing(self) -> bool:
        return self.on_change or self.every_s is not None

    @model_validator(mode="after")
    def _check(self) -> VideoQuery:
        if self.choices and len(set(self.choices)) < len(self.choices):
            raise ValueError("choices must differ")
        if self.on_change and not self.choices:
            raise ValueError("a question with on_change needs choices")
        if self.change_margin is not None and not self.on_change:
            raise ValueError("change_margin needs on_change")
        if (self.is_standing or self.again) and self.query_id is None:
            raise ValueError("a question with every_s, on_change or again needs a query_id")
        return self


class ResponseCancel(_Message):
    """Cancels queries: without an id, the one that is being answered.

    A cancelled query ends with `response.done`, whose `finish_reason` is `cancelled`.
    """

    type: Literal["response.cancel"]
    query_id: Id | None = Field(
        None, description="Cancel those that wait or are being answered, or the standing question."
    )


class VideoDone(_Message):
    """Ends the session, once all queries are answered."""

    type: Literal["video.done"]


class StatsRequest(_Message):
    """Asks for `session.stats`."""

    type: Literal["session.stats"]


class Ping(_Message):
    """Shows that the client is alive; answered by `pong`."""

    type: Literal["ping"]


ClientMessage: TypeAlias = Annotated[
    SessionConfig
    | SessionResume
    | VideoFrame
    | AudioChunk
    | VideoQuery
    | ResponseCancel
    | VideoDone
    | StatsRequest
    | Ping,
    Field(discriminator="type"),
]
CLIENT_MESSAGES: TypeAdapter[ClientMessage] = TypeAdapter(ClientMessage)


def pop_unknown_fields(message: ClientMessage) -> list[str]:
    """Remove the fields that mean nothing here, which may be large; return the names of the first ones."""
    parts: list[tuple[str, BaseModel]] = [(message.type, message)]
    if isinstance(message, SessionConfig | VideoQuery) and message.sampling:
        parts.append((f"{message.type}.sampling", message.sampling))
    names = [f"{of}.{name}" for of, part in parts for name in part.model_extra or ()]
    for _, part in parts:
        (part.model_extra or {}).clear()
    return [_quote(name) for name in names[:_MAX_UNKNOWN]]


def parse_message(text: str | bytes) -> ClientMessage:
    """Parse a text message of a client.

    Raises:
        ProtocolError: It is invalid; the message says why.
    """
    if why := too_intricate(text):
        raise ProtocolError(f"The message {why}.", code="invalid_message")
    try:
        return CLIENT_MESSAGES.validate_json(text)
    except ValidationError as error:
        raise ProtocolError(_describe(error), code="invalid_message") from None


def decode_base64(data: str, *, of: str) -> bytes:
    """Decode the data of a message. Raises `ProtocolError`, which says of what."""
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:  # also if it is not ASCII
        raise ProtocolError(f"The data of {of} is not valid base64.", code="invalid_message") from None


def _describe(error: ValidationError) -> str:
    if why := too_many_faults(error):
        return f"The message {why}; check it against the JSON Schema of the protocol."
    fault = error.errors(include_url=False)[0]
    kind, context = fault["type"], fault.get("ctx", {})
    known = ", ".join(
        get_args(model.model_fields["type"].annotation)[0] for model in get_args(get_args(ClientMessage)[0])
    )
    if kind == "json_invalid":
        return "The message is not valid JSON."
    if kind == "union_tag_invalid":
        return f"There is no message of type {_quote(context['tag'])}; there are {known}."
    if kind == "union_tag_not_found":
        return f"The message has no type; it must be one of {known}."
    if kind in {"model_attributes_type", "dict_type"} and len(fault["loc"]) <= 1:
        return "The message is not a JSON object."
    name, *path = fault["loc"]
    where = ".".join(_quote(part) if isinstance(part, str) else str(part) for part in path)
    clause = describe_fault(fault)
    return f"{name}: {where} {clause}." if where else f"{name}: {clause}."


def _quote(text: object) -> str:
    short = str(text)
    return escape_controls(short if len(short) <= _MAX_QUOTED else f"{short[:_MAX_QUOTED]}...")
