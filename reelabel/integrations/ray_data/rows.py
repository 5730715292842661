"""Rows of a batch: the video and segment that each names, and the frames it may already hold."""

from __future__ import annotations

import json
import logging
import math
import numbers
import os
from collections.abc import Mapping, Sized
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

import numpy as np

from reelabel.errors import ConfigurationError, SamplingRefusedError, VideoRefusedError
from reelabel.integrations.chat_messages import read_messages, video_urls
from reelabel.integrations.vllm.video_input import video_input
from reelabel.optional import require
from reelabel.sampled_frames import shown_pixels
from reelabel.sampling.properties import VideoProperties
from reelabel.sampling.registry import choose_indices, deviations_s
from reelabel.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from reelabel.sampled_frames import SampledFrames
    from reelabel.sampling.options import Sampling


Video: TypeAlias = str | bytes  # its path or URI, or its own bytes

_URI_COLUMNS = ("video_uri", "video_url")
_LIST_COLUMNS = ("video_uris", "video_urls")
MESSAGES = "messages"
SOURCE_COLUMNS = (*_URI_COLUMNS, *_LIST_COLUMNS, MESSAGES)
VIDEO, VIDEO_META, VIDEO_FRAMES = "video", "video_meta", "video_frames"
_IMAGE_DIMENSIONS = 3
_ADVICE = "give a path, a URI, or the bytes of a video"
_log = logging.getLogger(__name__)


def to_rows(batch: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Convert columns to rows.

    Raises:
        ConfigurationError: The batch is not a dictionary of columns of equal length.
    """
    if not isinstance(batch, Mapping):
        raise ConfigurationError(
            f"The batch is of type {type(batch).__name__}, not a dict; call map_batches with batch_format='numpy'."
        )
    if not batch.keys() & {*SOURCE_COLUMNS, VIDEO, VIDEO_FRAMES}:
        _warn_of_no_videos(tuple(batch))
    lengths = {name: _length(name, column) for name, column in batch.items()}
    if len({*lengths.values()}) > 1:
        raise ConfigurationError(
            f"The columns of the batch differ in length ({', '.join(f'{k} {n}' for k, n in lengths.items())}); "
            "give each a value for every row."
        )
    columns = [column.to_pylist() if hasattr(column, "to_pylist") else column for column in batch.values()]  # Arrow's
    return [dict(zip(batch, values, strict=True)) for values in zip(*columns, strict=True)]


def videos_of(row: Mapping[str, Any]) -> list[Video | VideoRefusedError]:
    """Return the URI or the bytes of each of a row's videos, or why there is neither.

    They are in `video_uri` or `video_url`, in the lists `video_uris` or `video_urls`, or in the video parts of OpenAI
    chat `messages`.

    Raises:
        VideoRefusedError: The row names no video in a column that should, or its messages cannot be read.
    """
    for name in _URI_COLUMNS:
        if _is_given(row.get(name)):
            return [_video(row[name], name)]
    for name in _LIST_COLUMNS:
        if _is_given(row.get(name)):
            return _videos(row[name], name)
    if _is_given(row.get(MESSAGES)):
        return [*_urls(row[MESSAGES])]
    if strange := [name for name in (VIDEO, VIDEO_FRAMES) if isinstance(row.get(name), str | bytes | Mapping)]:
        raise VideoRefusedError(
            f"{strange[0]} is of type {type(row[strange[0]]).__name__}, not frames; name the column video_uri."
        )
    if empty := [name for name in (*_URI_COLUMNS, *_LIST_COLUMNS) if name in row]:
        raise VideoRefusedError(f"{' and '.join(empty)}: empty; {_ADVICE}.")
    return []


def names_video(row: Mapping[str, Any]) -> bool:
    """Return whether any column of a row that can name a video is filled in."""
    return any(_is_given(row.get(name)) for name in SOURCE_COLUMNS)


def _urls(messages: Any) -> list[str]:  # noqa: ANN401 - whatever the column holds
    try:
        return video_urls(read_messages(messages))
    except json.JSONDecodeError:
        raise VideoRefusedError("messages: the text is not JSON.") from None
    except ValueError as error:
        raise VideoRefusedError(f"messages: {error}.") from None


@cache
def _warn_of_no_videos(columns: tuple[str, ...]) -> None:
    _log.warning(
        "Rows pass through, because none of their columns (%s) names a video; that needs %s or %s.",
        ", ".join(columns),
        ", ".join(SOURCE_COLUMNS[:-1]),
        SOURCE_COLUMNS[-1],
    )


def _length(name: str, column: Any) -> int:  # noqa: ANN401 - whatever the caller holds
    if isinstance(column, str | bytes | os.PathLike) or not isinstance(column, Sized):
        raise ConfigurationError(f"The column {name} is a single {type(column).__name__}; put it in a list.")
    return len(column)


def _video(given: Any, name: str) -> Video | VideoRefusedError:  # noqa: ANN401 - whatever the column holds
    if isinstance(given, Mapping):  # how Hugging Face's datasets hold a video
        given = given.get("bytes") or given.get("path")
    if not _is_given(given):
        return VideoRefusedError(f"{name}: empty; {_ADVICE}.")
    if isinstance(given, bytes | str):
        return given
    if isinstance(given, os.PathLike):
        return str(given)
    return VideoRefusedError(f"{name} is of type {type(given).__name__}; {_ADVICE}.")


def _videos(given: Any, name: str) -> list[Video | VideoRefusedError]:  # noqa: ANN401 - whatever the column holds
    if not isinstance(given, list | tuple | np.ndarray) or len(given) == 0:
        raise VideoRefusedError(f"{name} is not a list of URIs; give at least one.")
    return [_video(video, name) for video in given]


def segment_of(row: Mapping[str, Any], videos: int) -> Segment:
    """Return the segment of its video that a row of so many videos names in `start_s` and `end_s`.

    Raises:
        VideoRefusedError: They are not numbers, the segment is empty or starts before 0, or the row names several
            videos.
    """
    start_s, end_s = (_seconds(row, name) for name in ("start_s", "end_s"))
    if (start_s or 0.0) < 0 or (end_s is not None and end_s <= (start_s or 0.0)):
        raise VideoRefusedError(f"The segment from start_s {start_s} to end_s {end_s} is not valid; correct them.")
    segment = Segment.of(start_s, end_s)
    if not segment.is_whole and videos > 1:
        raise VideoRefusedError("start_s and end_s are given with several videos; leave them out.")
    return segment


def held_videos(row: Mapping[str, Any]) -> list[Any]:
    """Return the frames that a row's `video` or `video_frames` already holds, for each of its videos; none if empty.

    Those of one video are images, an array (M, H, W, 3) or (M, 3, H, W), or a pair of either and its metadata; those of
    several, a list of such.
    """
    for name in (VIDEO, VIDEO_FRAMES):
        videos = _split_videos(row.get(name))
        if any(len(frames_of(video)) for video in videos):
            return videos
    return []


def frames_of(video: Any) -> Any:  # noqa: ANN401 - images or an array
    """Return the frames of one video, without the metadata that may be packed with them."""
    return video[0] if isinstance(video, tuple) else video


def _split_videos(cell: Any) -> list[Any]:  # noqa: ANN401 - whatever the column holds
    if isinstance(cell, tuple):
        return [cell]
    if not isinstance(cell, list | np.ndarray) or len(cell) == 0:
        return []
    is_one = all(_is_image(item) for item in cell)
    return [cell] if is_one else [*cell]


def _is_image(item: Any) -> bool:  # noqa: ANN401 - whatever the column holds
    return item.ndim == _IMAGE_DIMENSIONS if isinstance(item, np.ndarray) else not isinstance(item, list | tuple)


def _seconds(row: Mapping[str, Any], name: str) -> float | None:
    value = row.get(name)
    if not _is_given(value):
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise VideoRefusedError(f"{name} is {value!r}; it must be a number of seconds.")
    return float(value)


def _is_given(value: object) -> bool:
    is_nan = isinstance(value, float) and math.isnan(value)  # how a string column may represent null
    is_blank = isinstance(value, str | bytes) and not value
    return value is not None and not is_nan and not is_blank


def sample_frames(video: Any, meta: VideoMeta, sampling: Sampling) -> tuple[Any, VideoMeta]:  # noqa: ANN401
    """Choose by a dense sampler among the frames of one video: images, an array, or frames packed with metadata.

    Times are those of its metadata, or of the packed ones.

    Returns:
        The chosen frames, in the format in which they came, and their metadata.

    Raises:
        SamplingRefusedError: The sampler needs times that are unknown, or selects no frame.
    """
    frames, packed = frames_of(video), video[1] if isinstance(video, tuple) else None
    times_s = _times_s(len(frames), meta, packed or {})
    facts = _properties(len(frames), times_s, sampling)
    chosen, deviations = choose_indices(sampling, facts), deviations_s(sampling, facts)
    kept = frames[chosen] if isinstance(frames, np.ndarray) else [frames[at] for at in chosen]
    picked: VideoMeta = {
        **meta,
        "video_num_frames": len(chosen),
        "frame_timestamps": np.empty(0) if times_s is None else times_s[chosen],
        "frame_indices": meta["frame_indices"][chosen] if len(meta["frame_indices"]) else meta["frame_indices"],
        "deviation_s": np.empty(0) if deviations is None else deviations,
    }
    if packed is None:
        return kept, picked
    indices = packed.get("frames_indices")
    return (kept, packed | ({} if indices is None else {"frames_indices": [indices[at] for at in chosen]})), picked


def _times_s(count: int, meta: VideoMeta, packed: Mapping[str, Any]) -> npt.NDArray[np.float64] | None:
    """Return the time of each frame in seconds; None if unknown."""
    indices, fps = packed.get("frames_indices"), packed.get("fps")
    times_s = meta["frame_timestamps"]
    if len(times_s) == count:
        return times_s
    return np.asarray(indices, np.float64) / fps if indices is not None and len(indices) == count and fps else None


def _properties(count: int, times_s: npt.NDArray[np.float64] | None, sampling: Sampling) -> VideoProperties:
    if times_s is None:
        if sampling.fps is not None or not _counts(sampling):
            raise SamplingRefusedError(
                f"The times of the frames are unknown, which the sampler {sampling.sampler} needs; use num_frames."
            )
        return VideoProperties(total_frames=count, fps=0.0, duration_s=0.0)
    length_s = float(times_s.max() - times_s.min())
    fps = (count - 1) / length_s if length_s > 0 else 0.0
    return VideoProperties(total_frames=count, fps=fps, duration_s=count / fps if fps else 0.0, times_s=times_s)


def _counts(sampling: Sampling) -> bool:
    """Return whether a sampler can do without times: it spreads a number of frames."""
    return sampling.sampler in {"num_frames", "uniform"}


_CHANNELS = 3
_FRAME_DIMENSIONS = 3


class VideoMeta(TypedDict):
    """Metadata of one video in the rows of `PrepareVideo`.

    Every field has one type, so that Arrow can join rows of any kind.

    Attributes:
        video_size: Width and height in pixels; zeros without frames.
        video_num_frames: Number of frames shown, M.
        frame_timestamps: Their times, in seconds from the start of the whole video; shape (M,), float64; empty if
            unknown.
        frame_indices: Their positions in the video, from 0, or -1; shape (M,), int64; empty if unknown.
        deviation_s: Each frame's time minus the instant it was chosen for; shape (M,), float64; empty for samplers that
            aim at no instants.
        source: The path or URI, without the query of a signed URL; empty for bytes.
        decode_note: What differs from a plain decode, such as broken frames that were left out; empty if nothing does.
        failed: Whether there are no frames because of an error.
        error_type: The error's stable code, such as `video_missing`; empty if there is none.
        error: The error, a sentence; empty if there is none.
    """

    video_size: list[int]
    video_num_frames: int
    frame_timestamps: npt.NDArray[np.float64]
    frame_indices: npt.NDArray[np.int64]
    deviation_s: npt.NDArray[np.float64]
    source: str
    decode_note: str
    failed: bool
    error_type: str
    error: str


class PreparedRow(TypedDict):
    """Columns that `PrepareVideo` adds to a row: lists, with an entry for each of its videos, in order; or None.

    Attributes:
        video: The frames of each video: a list of images (`pil`), an array (`numpy`), or an array and its metadata
            (`pack_for_model`). A video that failed has an empty one of the same type.
        video_meta: What is known of each video.
    """

    video: list[Any] | None
    video_meta: list[VideoMeta] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFormat:
    """The output format of frames.

    Attributes:
        kind: `pil`, a list of images; `numpy`, one array; `packed`, an array and its metadata, as vLLM expects them.
        channels_first: Arrays have shape (M, 3, H, W) instead of (M, H, W, 3).

    Raises:
        ConfigurationError: `pil` needs Pillow, which is not installed.
    """

    kind: Literal["pil", "numpy", "packed"]
    channels_first: bool = False

    def __post_init__(self) -> None:
        if self.kind == "pil":
            _pillow()

    def video(self, frames: SampledFrames) -> Any:  # noqa: ANN401 - a list, an array or a pair
        """Convert the M frames shown to the model, with repeats; arrays may be those of `frames`."""
        if self.kind == "packed":
            return video_input(frames)
        pixels = shown_pixels(frames.images, frames.picks)
        if self.kind == "pil":
            return [_pillow().fromarray(image) for image in pixels]
        return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)) if self.channels_first else pixels

    def no_video(self) -> Any:  # noqa: ANN401
        """Return an empty value of the same type, so that failed rows do not change the column's type."""
        if self.kind == "pil":
            return []
        empty = np.empty((0, _CHANNELS, 0, 0) if self.channels_first else (0, 0, 0, _CHANNELS), np.uint8)
        return (empty, {}) if self.kind == "packed" else empty


def _pillow() -> Any:  # noqa: ANN401 - a module
    return require("PIL.Image", extra="images", purpose="The output format pil")


def frame_metadata(frames: SampledFrames, source: str) -> VideoMeta:
    """Return the metadata of one video's frames."""
    height, width = frames.images.shape[1:3]
    deviation_s = np.empty(0) if frames.deviation_s is None else frames.deviation_s
    return {
        **_no_frames(source),
        "video_size": [width, height],
        "video_num_frames": len(frames.picks),
        "frame_timestamps": frames.time_s[frames.picks],
        "frame_indices": frames.frame_index[frames.picks],
        "deviation_s": deviation_s,
        "decode_note": frames.reason,
    }


def failure_metadata(error: Exception, source: str) -> VideoMeta:
    """Return the metadata of a failed video; `error_type` is the error's stable code."""
    code = getattr(error, "code", type(error).__name__)
    return {**_no_frames(source), "failed": True, "error_type": code, "error": str(error)}


def held_cells(row: Mapping[str, Any]) -> list[tuple[Any, VideoMeta]]:
    """Return the frames of each video that a row holds already, and their metadata, of which times may be unknown."""
    videos, metas = held_videos(row), row.get(VIDEO_META)
    if metas is None or len(metas) != len(videos):
        metas = [{}] * len(videos)
    return [(video, _held_metadata(frames_of(video), meta)) for video, meta in zip(videos, metas, strict=True)]


def object_column(cells: Sequence[Any]) -> npt.NDArray[np.object_]:
    """Create an object array, whose cells NumPy does not convert."""
    objects = np.empty(len(cells), np.object_)
    for row, cell in enumerate(cells):
        objects[row] = cell
    return objects


def _held_metadata(frames: Any, known: Mapping[str, Any]) -> VideoMeta:  # noqa: ANN401 - images or an array
    meta: Any = {**_no_frames(""), "video_size": _size_of(frames), **known, "video_num_frames": len(frames)}
    types = {"frame_timestamps": np.float64, "frame_indices": np.int64, "deviation_s": np.float64}
    arrays = {name: np.asarray(meta[name], dtype) for name, dtype in types.items()}  # lists, if they come from Arrow
    held: VideoMeta = meta | arrays | {"video_size": [*meta["video_size"]]}
    return held


def _no_frames(source: str) -> VideoMeta:
    return {
        "video_size": [0, 0],
        "video_num_frames": 0,
        "frame_timestamps": np.empty(0),
        "frame_indices": np.empty(0, np.int64),
        "deviation_s": np.empty(0),
        "source": source,
        "decode_note": "",
        "failed": False,
        "error_type": "",
        "error": "",
    }


def _size_of(frames: Any) -> list[int]:  # noqa: ANN401 - images, an array or an unknown type
    """Return width and height in pixels."""
    if len(frames) == 0:
        return [0, 0]
    if hasattr(frames[0], "width") and hasattr(frames[0], "height"):
        return [frames[0].width, frames[0].height]
    shape: tuple[int, ...] = getattr(frames[0], "shape", ())
    if len(shape) != _FRAME_DIMENSIONS:
        return [0, 0]
    height, width = shape[:2] if shape[-1] == _CHANNELS else shape[1:]
    return [width, height]
