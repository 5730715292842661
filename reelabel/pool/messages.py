"""What a pool and a decoding process say to each other.

The answers are validated in full, with strict types: a decoding process may have been taken over by a video.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from reelabel.errors import (
    DecoderCrashedError,
    FallbackRequired,
    InvalidAnswerError,
    NoFramesError,
    NoVideoStreamError,
    SamplingRefusedError,
    VideoEmptyError,
    VideoError,
    VideoTooLargeError,
    VideoUnreadableError,
    unreadable,
)

if TYPE_CHECKING:
    from reelabel.index import Lists
    from reelabel.limits import Limits
    from reelabel.sampling.options import Sampling
    from reelabel.sampling.wanted import Wanted
    from reelabel.sandbox import SandboxMode
    from reelabel.segment import Segment, Windows
    from reelabel.strategies.keyframe_table import SavedIndex

MAX_TEXT = 2000
_INT64 = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a decoding process is told when it starts.

    Attributes:
        memory_bytes: Limit on its address space.
        threads: Decoding threads.
        sandbox: How much protection is required.
        modules: Modules to import, which later requests refer to.
        main: Arguments of `multiprocessing.spawn.prepare` that import the main module; empty if not needed.
    """

    memory_bytes: int
    threads: int
    sandbox: SandboxMode
    modules: tuple[str, ...] = ()
    main: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One video, and what to extract from it; see `extract_keyframes` and `extract_keyframes_by_ranges`.

    Attributes:
        size_bytes: Length of the video.
        suffix: The suffix of its name.
        known: What is known of its index, for a video read in ranges; None for one whose descriptor is sent along.
        lists: What to list, extracting nothing; see `read_index`. None extracts.
        of_any_size: Whether to list the frames of a large file, too, by a pass over it.
        windows: The parts of the segment to sample from; empty for all of it.
        roughly: Whether the frames need not be exact; see `ExtractionRequest`.
        fast_only: Whether to refuse rather than to decode the video from its beginning.
        wanted: Frames that are wanted in place of those that the sampler chooses.
        in_order: Whether to decode it from its beginning, and to keep it open for more such requests, which come
            without its descriptor; None in place of a request ends them.
    """

    size_bytes: int
    suffix: str
    sampling: Sampling
    limits: Limits
    segment: Segment
    threads: int
    native: bool = False
    every: bool = False
    known: SavedIndex | None = None
    lists: Lists | None = None
    of_any_size: bool = False
    windows: Windows = ()
    roughly: bool = False
    fast_only: bool = False
    wanted: Wanted | None = None
    in_order: bool = False


def clip(text: str) -> str:
    """Return text of a length, and of characters, that a message can carry."""
    return text[:MAX_TEXT].encode(errors="replace").decode()


def _printable(text: str) -> str:
    """Replace control characters, which a terminal would obey and a database would refuse."""
    return "".join(each if each.isprintable() else "?" for each in text)


Text = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(_printable)]
Count = Annotated[int, Field(ge=0, lt=_INT64)]
Number = Annotated[int, Field(ge=-_INT64, lt=_INT64)]
Positive = Annotated[int, Field(ge=1, lt=_INT64)]
Small = Annotated[int, Field(ge=0, lt=2**31)]  # as a column of a database
Side = Annotated[int, Field(ge=1, lt=2**31)]
Margin = Annotated[int, Field(ge=0, lt=2**31)]
Milliseconds = Annotated[float, Field(ge=0)]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Ready(_Answer):
    """The process has started.

    Attributes:
        missing: Layers of the sandbox that are not available here.
    """

    kind: Literal["ready"] = "ready"
    missing: tuple[Text, ...] = ()


class Unavailable(_Answer):
    """The process cannot start, and why."""

    kind: Literal["unavailable"] = "unavailable"
    message: Text


class Begun(_Answer):
    """The process has received the request."""

    kind: Literal["begun"] = "begun"


class Reads(_Answer):
    """The process needs ranges of the video, each given by its start and size.

    Attributes:
        is_kept: Whether they are part of the index, or of frames whose packets may be wanted.
    """

    kind: Literal["reads"] = "reads"
    is_kept: bool = True
    spans: Annotated[tuple[tuple[Count, Positive], ...], Field(min_length=1)]


class Failed(_Answer):
    """The video cannot be used, or not by ranges."""

    kind: Literal["failed"] = "failed"
    code: Text
    message: Text
    frames_decoded: Count = 0


class Codec(_Answer):
    """The attributes of `CodecParameters`; `extradata` as base64."""

    name: Text
    extradata: str
    tag: Annotated[str, Field(max_length=16)]
    width: Side
    height: Side
    pix_fmt: Text | None
    bits_per_coded_sample: Count
    color_range: Count
    color_primaries: Count
    color_trc: Count
    colorspace: Count
    field_order: Count


class Info(_Answer):
    """The attributes of `VideoInfo`; `time_base` as a fraction."""

    container: Text
    codec: Text
    width_px: Margin
    height_px: Margin
    hdr: Literal["", "PQ", "HLG"]
    time_base: Annotated[str, Field(pattern=r"^[0-9]{1,10}(/[1-9][0-9]{0,9})?$")]
    fps: Annotated[float, Field(ge=0)]
    duration_s: Annotated[float, Field(ge=0)]
    pixel_aspect: float
    crop: tuple[Margin, Margin, Margin, Margin]
    frames: Count | None


Orienting: TypeAlias = tuple[bool, bool, bool, Literal[0, 90, 180, 270]]


class Table(_Answer):
    """A keyframe table, without its columns.

    Attributes:
        keyframes: Its number of rows.
    """

    keyframes: Positive
    codec: Codec
    info: Info
    orientation: Orienting
    frames: Count | None
    missing_bytes: Count
    brings_parameters: bool
    is_order_proven: bool


class Frames(_Answer):
    """Frames, without their columns, which are in the descriptor.

    Attributes:
        count: Number of images.
        picks: Number of picks.
        keyframes: Number of known keyframe times; None if unknown.
        has_deviations: Whether there is a deviation for each pick.
        is_index_known: Whether the request's own index is still the best.
        reads: How many of the ranges read locate the keyframes, if there is no table.
        table: The keyframe table; None if there is none.
    """

    kind: Literal["frames"] = "frames"
    count: Positive
    height_px: Side
    width_px: Side
    picks: Positive
    keyframes: Count | None
    has_deviations: bool
    keyframes_in_file: Small
    total_frames: Small | None
    fps: float
    duration_s: float
    native_width_px: Side
    native_height_px: Side
    orientation: Orienting
    method: Literal["index", "seek", "linear"]
    reason: Text
    decode_ms: Milliseconds
    frames_decoded: Small
    sampler: Text
    dropped_as_similar: Small
    pixel_aspect: float
    starts_s: float | None
    first_s: float | None
    first_ms: Number | None
    is_index_known: bool = False
    reads: Count = 0
    table: Table | None = None


class Index(_Answer):
    """The attributes of `VideoIndex`; its columns are in the descriptor.

    Attributes:
        rows: Number of rows.
        shown: Number of those that are shown.
        has_times: Whether there is a time for each of them.
        is_listed: Whether there is a time for each keyframe.
        reads: How many of the ranges read locate the keyframes.
    """

    kind: Literal["index"] = "index"
    info: Info
    source: Literal["container", "packets"]
    lists: Literal["frames", "keyframes"]
    rows: Count
    shown: Count
    has_times: bool
    is_listed: bool
    keyframes: Count
    first_s: float | None
    last_s: float | None
    total_frames: Count | None
    is_whole: bool
    is_start_known: bool
    is_order_proven: bool
    doubt: Text
    note: Text
    reads: Count = 0


Answer: TypeAlias = Ready | Unavailable | Begun | Reads | Failed | Frames | Index

_answers: TypeAdapter[Answer] = TypeAdapter(Annotated[Answer, Field(discriminator="kind")])


def parse_answer(data: bytes) -> Answer:
    """Parse what a decoding process sent.

    Raises:
        InvalidAnswerError: It is no answer.
    """
    try:
        return _answers.validate_json(data)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise InvalidAnswerError(f"{'.'.join(map(str, fault['loc'][:3]))}: {fault['msg']}"[:MAX_TEXT]) from None


# What a decoding process may say of a video. The pool itself opens and reads it, and so knows best what else is wrong.
_ERRORS: dict[str, type[VideoError]] = {
    each.code: each
    for each in (
        VideoEmptyError,
        VideoUnreadableError,
        NoVideoStreamError,
        NoFramesError,
        SamplingRefusedError,
        VideoTooLargeError,
    )
}
_FAST_PATH, OUT_OF_MEMORY, _READ_FAILED = "fast_path_unavailable", "out_of_memory", "read_failed"


class ReadFailedError(Exception):
    """The pool could not read a range, and knows why."""


def describe_failure(error: Exception) -> Failed:
    """Return the message about an error, in a decoding process."""
    if isinstance(error, FallbackRequired):
        return Failed(code=_FAST_PATH, message=clip(str(error)), frames_decoded=error.frames_decoded)
    if isinstance(error, MemoryError | ReadFailedError):
        return Failed(code=OUT_OF_MEMORY if isinstance(error, MemoryError) else _READ_FAILED, message="")
    known = error if isinstance(error, VideoError) and error.code in _ERRORS else unreadable(error)
    return Failed(code=known.code, message=clip(known.message))


def failure(failed: Failed, *, bytes_fetched: int) -> Exception:
    """Return the error that a decoding process reports.

    Raises:
        InvalidAnswerError: It is not one that a decoding process can know of.
    """
    if failed.code == OUT_OF_MEMORY:
        return DecoderCrashedError(
            "Decoding needed more memory than extract.memory_mib; raise it if the video is valid."
        )
    if failed.code == _FAST_PATH:
        unavailable = FallbackRequired(failed.message)
        unavailable.bytes_fetched, unavailable.frames_decoded = bytes_fetched, failed.frames_decoded
        return unavailable
    if failed.code not in _ERRORS:
        raise InvalidAnswerError(f"the error {failed.code[:40]}")
    return _ERRORS[failed.code](failed.message)
