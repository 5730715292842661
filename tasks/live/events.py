"""What the server of a live session sends: what vLLM-Omni publishes for `/v1/video/chat/stream`, and more."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from tasks.live.messages import ErrorCode, ProtocolError  # noqa: TC001 - read by pydantic

EndReason: TypeAlias = Literal[
    "done", "client_left", "client_lost", "idle", "total_time", "limit", "server_stopping", "error"
]
NoticeCode: TypeAlias = Literal[
    "engine_lost",
    "engine_back",
    "events_lost",
    "standing_ended",
    "nothing_cancelled",
    "fields_ignored",
    "other_model",
    "no_speech",
]
FrameStatus: TypeAlias = Literal["kept", "similar", "evicted"]


class _Event(BaseModel):
    """What the server sends; `seq` counts from 1 over all connections of a session, and is 0 before there is one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seq: Annotated[int, Field(ge=0)] = 0


class SessionLimits(BaseModel):
    """Limits beyond which a session ends, or a message is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    idle_s: float = Field(description="Seconds without a message.")
    total_s: float = Field(description="Seconds of the whole session.")
    max_frame_pixels: int = Field(description="Pixels of one frame.")
    max_message_bytes: int = Field(description="Bytes of one message.")


class SessionCreated(_Event):
    """The session has begun, or was resumed."""

    type: Literal["session.created"] = "session.created"
    session_id: str
    resume_token: str = Field(description="Lets the client resume the session within `resume_s` of losing it.")
    resume_s: float
    is_resumed: bool = False
    model: str
    modalities: tuple[str, ...] = Field(description="Modalities of answers.")
    takes_audio: bool = Field(description="Whether the model accepts audio chunks.")
    window: int | None
    window_s: float | None
    sink: int
    num_frames: int | None = Field(description="Maximum frames of the window that a query sees; null for all.")
    history: int = Field(description="Maximum earlier questions, with their answers, that a question in words sees.")
    frame_filter_threshold: float | None = Field(description="null if similar frames are kept.")
    limits: SessionLimits


class FrameAck(_Event):
    """What became of a frame; one of these, or an `error` that names it, answers each frame.

    As published, it is called `video.frame.ack` if the frame had a `frame_id`.
    """

    type: Literal["frame.ack", "video.frame.ack"] = "frame.ack"
    frame: int = Field(description="Number of the frame in the session, from 0, in order of arrival.")
    status: FrameStatus = Field(
        description="kept; similar to the last kept one; evicted: its time is before that of the last kept frame."
    )
    time_s: float | None = Field(description="Seconds since the first frame, as given to the model.")
    similarity: float | None = Field(default=None, description="Similarity to the last kept frame.")
    evicted: int = Field(default=0, description="Kept frames that this one pushed out of the window.")
    frame_id: str | None = None
    pts_ms: float | None = None
    capture_ts_ms: float | None = None
    accepted: bool = Field(description="Whether it was kept.")
    buffered_frames: int = Field(description="Frames of the sink and the window now.")
    reason: str | None = Field(default=None, description="Why it was not kept: filtered or late.")
    server_receive_ts_ms: float = Field(description="Unix time of its arrival.")


class ResponseStart(_Event):
    """The answer to a query begins."""

    type: Literal["response.start"] = "response.start"
    query: int = Field(description="Number of the query in the session, from 0, as in its row.")
    query_id: str | None = None


class TextDelta(_Event):
    """The next piece of an answer."""

    type: Literal["response.text.delta"] = "response.text.delta"
    query: int
    delta: str


class ResponseDone(_Event):
    """An answer is complete, and recorded: its text, what the query saw, and its cost."""

    type: Literal["response.done"] = "response.done"
    query: int
    query_id: str | None = None
    text: str = Field(description="The whole answer; with choices, the most probable one.")
    finish_reason: Literal["stop", "length", "cancelled"]
    choice: int | None = Field(default=None, description="Index of the most probable choice, from 0.")
    probabilities: tuple[float, ...] | None = Field(default=None, description="One per choice; they sum to 1.")
    margin: float | None = Field(default=None, description="Most probable choice minus the runner-up.")
    first_token_ms: float | None = Field(
        description="From the arrival of the query to the first token; null if it was cancelled before."
    )
    total_ms: float = Field(description="From the arrival of the query to the last token.")
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = Field(description="Tokens of the prompt that were prefilled before the query arrived.")
    frames_used: int = Field(description="Frames that the query saw.")
    sink_frames: int = Field(description="How many of these belong to the sink.")
    first_frame_s: float | None = Field(
        description="Time of the first frame that it saw after those; null if audio has pushed out all others."
    )
    last_frame_s: float = Field(description="Time of the last frame that it saw.")
    last_frame: int = Field(description="Number of that frame.")
    last_frame_id: str | None = None
    turns: int = Field(default=0, description="Earlier questions, with their answers, that the query saw.")
    evicted: int = Field(description="Kept frames that have left the window so far, which it did not see.")
    audio_s: float = Field(default=0.0, description="Seconds of audio in the prompt of the query.")
    speech_s: float = Field(default=0.0, description="Seconds of its answer in speech.")
    first_speech_ms: float | None = Field(
        default=None, description="From the arrival of the query to the first piece of its answer in speech."
    )
    last_audio_s: float | None = Field(default=None, description="When that audio ends, on the clock of the frames.")
    engine_restarts: int = Field(default=0, description="How often the engine was lost while it was answered.")


class FramesConsumed(_Event):
    """The frames that a query saw; only for clients of the newer protocol, before `response.done`."""

    type: Literal["video.frames.consumed"] = "video.frames.consumed"
    query: int
    frames: int
    last_frame: int = Field(description="Number of the last one.")


class SpeechDelta(_Event):
    """The next piece of an answer in speech: `delta`, or the binary message that follows.

    It is 16-bit little-endian PCM of one channel.
    """

    type: Literal["response.audio", "response.audio.delta", "response.output_audio.delta"] = "response.audio"
    query: int
    bytes: int = Field(description="Its size.")
    delta: str | None = Field(default=None, description="In base64; null if it follows as a binary message.")
    format: Literal["pcm16"] = "pcm16"
    sample_rate: int = Field(description="Samples per second.")


class SpeechDone(_Event):
    """An answer in speech is complete."""

    type: Literal["response.audio.done", "response.output_audio.done"] = "response.audio.done"
    query: int


class TextDone(_Event):
    """Follows `response.done`, as clients of the published protocol expect it."""

    type: Literal["response.text.done"] = "response.text.done"
    query: int
    text: str


class SessionStats(_Event):
    """Statistics of the session so far."""

    type: Literal["session.stats"] = "session.stats"
    age_s: float
    frames: int
    kept: int
    similar: int
    evicted: int = Field(description="Frames that came too late.")
    refused: int = Field(description="Frames that could not be read.")
    left_window: int = Field(description="Kept frames that have left the window.")
    in_window: int = Field(description="Frames of the sink and the window now.")
    audio_s: float = Field(description="Seconds of audio received.")
    queries: int
    answered: int
    waiting: int = Field(description="Queries that are waiting or being answered.")
    bytes: int
    pixels: int
    engine_restarts: int


class Notice(_Event):
    """Something that the client should know, but need not act on."""

    type: Literal["session.notice"] = "session.notice"
    code: NoticeCode
    message: str
    query_id: str | None = None


class ErrorEvent(_Event):
    """A message, a frame or a query was refused, or the session ends."""

    type: Literal["error"] = "error"
    code: ErrorCode
    message: str
    frame: int | None = None
    frame_id: str | None = None
    query: int | None = None
    query_id: str | None = None
    is_fatal: bool = Field(default=False, description="Whether `session.closed` follows.")

    @classmethod
    def of(cls, refused: ProtocolError, **about: int | str | None) -> ErrorEvent:
        values = {"code": refused.code, "message": refused.message, "is_fatal": refused.is_fatal}
        return cls.model_validate(values | about)


class SessionDone(_Event):
    """Answers `video.done`, as published; `session.closed` follows."""

    type: Literal["session.done"] = "session.done"


class SessionClosed(_Event):
    """The last event of a session."""

    type: Literal["session.closed"] = "session.closed"
    reason: EndReason


class Pong(_Event):
    """Answers `ping`."""

    type: Literal["pong"] = "pong"


Event: TypeAlias = (
    SessionCreated
    | FrameAck
    | ResponseStart
    | TextDelta
    | FramesConsumed
    | SpeechDelta
    | SpeechDone
    | ResponseDone
    | TextDone
    | SessionStats
    | Notice
    | ErrorEvent
    | SessionDone
    | SessionClosed
    | Pong
)
EVENTS: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="type")])
