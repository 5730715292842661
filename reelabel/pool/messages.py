"""Messages between a pool and a decoding process.

The answers are checked in full when they are made: a decoding process may have been taken over by a video.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from reelabel.errors import (
    DecoderCrashedError,
    FallbackRequired,
    InvalidReplyError,
    NoFramesError,
    NoVideoStreamError,
    SamplingRefusedError,
    VideoEmptyError,
    VideoError,
    VideoTooLargeError,
    VideoUnreadableError,
    unreadable,
)
from reelabel.pool.checked import MAX_TEXT, Checked, checked, printable, within

if TYPE_CHECKING:
    from reelabel.index import Lists
    from reelabel.limits import Limits
    from reelabel.sampling.choose import Wanted
    from reelabel.sampling.options import Sampling
    from reelabel.sandbox import SandboxMode
    from reelabel.segment import Segment, Windows
    from reelabel.strategies.keyframe_table import SavedIndex

_INT32_MOST = 2**31 - 1
_MAX_TAG = 16
_TIME_BASE = re.compile(r"[0-9]{1,10}(/[1-9][0-9]{0,9})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Settings that a decoding process receives when it starts.

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
    """One video, and what to extract from it; see `extract_local` and `extract_ranges`.

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


def _ascii(text: str) -> str:
    if not text.isascii():
        raise InvalidReplyError("not ASCII")
    return text


def _tag(text: str) -> str:
    if len(text) > _MAX_TAG:
        raise InvalidReplyError("too long")
    return _ascii(text)


def _fraction(text: str) -> str:
    if not _TIME_BASE.fullmatch(text):
        raise InvalidReplyError("not a fraction")
    return text


def _not_empty(values: tuple[object, ...]) -> tuple[object, ...]:
    if not values:
        raise InvalidReplyError("empty")
    return values


Text = Annotated[str, printable]
Count = Annotated[int, within(0)]
Positive = Annotated[int, within(1)]
Small = Annotated[int, within(0, _INT32_MOST)]  # as a column of a database
Side = Annotated[int, within(1, _INT32_MOST)]
NotNegative = Annotated[float, within(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Checked):
    """The process has started.

    Attributes:
        missing: Layers of the sandbox that are not available here.
    """

    kind: Literal["ready"] = "ready"
    missing: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable(Checked):
    """The process cannot start, and why."""

    kind: Literal["unavailable"] = "unavailable"
    message: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Checked):
    """The process has received the request."""

    kind: Literal["started"] = "started"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads(Checked):
    """The process needs ranges of the video, each given by its start and size.

    Attributes:
        is_kept: Whether they are part of the index, or of frames whose packets may be wanted.
    """

    kind: Literal["reads"] = "reads"
    is_kept: bool = True
    spans: Annotated[tuple[tuple[Count, Positive], ...], _not_empty]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Checked):
    """The video cannot be used, or not by ranges."""

    kind: Literal["failed"] = "failed"
    code: Text
    message: Text
    frames_decoded: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec(Checked):
    """The attributes of `CodecParameters`; `extradata` as base64."""

    name: Text
    extradata: Annotated[str, _ascii]
    tag: Annotated[str, _tag]
    width: Side
    height: Side
    pix_fmt: Text | None
    bits_per_coded_sample: Count
    color_range: Count
    color_primaries: Count
    color_trc: Count
    colorspace: Count
    field_order: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Info(Checked):
    """The attributes of `VideoInfo`; `time_base` as a fraction."""

    container: Text
    codec: Text
    width_px: Small
    height_px: Small
    hdr: Literal["", "PQ", "HLG"]
    time_base: Annotated[str, _fraction]
    fps: NotNegative
    duration_s: NotNegative
    pixel_aspect: float
    crop: tuple[Small, Small, Small, Small]
    frames: Count | None


Orienting: TypeAlias = tuple[bool, bool, bool, Literal[0, 90, 180, 270]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Checked):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames(Checked):
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
    decode_ms: NotNegative
    frames_decoded: Small
    sampler: Text
    dropped_as_similar: Small
    pixel_aspect: float
    starts_s: float | None
    first_s: float | None
    first_ms: int | None
    is_index_known: bool = False
    reads: Count = 0
    table: Table | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Index(Checked):
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


Answer: TypeAlias = Ready | Unavailable | Started | Reads | Failed | Frames | Index

_ANSWERS: dict[object, type[Answer]] = {
    "ready": Ready,
    "unavailable": Unavailable,
    "started": Started,
    "reads": Reads,
    "failed": Failed,
    "frames": Frames,
    "index": Index,
}


def encode_answer(answer: Answer) -> bytes:
    """Return an answer as JSON."""
    return json.dumps(answer.to_dict(), separators=(",", ":")).encode()


def parse_answer(data: bytes) -> Answer:
    """Parse what a decoding process sent.

    Raises:
        InvalidReplyError: It is no answer.
    """
    try:
        sent = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidReplyError("not JSON") from None
    kind = sent.get("kind") if isinstance(sent, dict) else None
    if not isinstance(kind, str) or kind not in _ANSWERS:
        raise InvalidReplyError("an unknown kind of message")
    answer: Answer = checked(sent, _ANSWERS[kind])
    return answer


# Errors of a video that a decoding process may report. The pool itself opens and reads it, and reports the others.
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
        InvalidReplyError: It is not one that a decoding process can know of.
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
        raise InvalidReplyError(f"the error {failed.code[:40]}")
    return _ERRORS[failed.code](failed.message)
