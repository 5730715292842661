"""Rows of a batch: the video and segment that each names, and the frames it may already hold."""

from __future__ import annotations

import json
import math
import numbers
import os
from collections.abc import Mapping, Sized
from typing import Any, TypeAlias

import numpy as np

from reelabel.errors import ConfigurationError, VideoRefusedError
from reelabel.integrations.chat_messages import NoVideoError, parse_messages, without_nulls
from reelabel.segment import Segment

Video: TypeAlias = str | bytes  # its path or URI, or its own bytes

_URI_COLUMNS = ("video_uri", "video_url")
_LIST_COLUMNS = ("video_uris", "video_urls")
_MESSAGES = "messages"
SOURCE_COLUMNS = (*_URI_COLUMNS, *_LIST_COLUMNS, _MESSAGES)
VIDEO, VIDEO_META = "video", "video_meta"


def to_rows(batch: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Convert columns to rows.

    Raises:
        ConfigurationError: The batch is not a dictionary of columns of equal length, or no column can name a video.
    """
    if not isinstance(batch, Mapping):
        raise ConfigurationError(
            f"The batch is of type {type(batch).__name__}, not a dict; call map_batches with batch_format='numpy'."
        )
    if not batch.keys() & {*SOURCE_COLUMNS, VIDEO}:
        raise ConfigurationError(
            f"The batch has no column that names a video; it needs {', '.join(SOURCE_COLUMNS[:-1])} or "
            f"{SOURCE_COLUMNS[-1]}."
        )
    lengths = {name: _length(name, column) for name, column in batch.items()}
    if len({*lengths.values()}) > 1:
        raise ConfigurationError(
            f"The columns of the batch differ in length ({', '.join(f'{k} {n}' for k, n in lengths.items())}); "
            "give each a value for every row."
        )
    columns = [column.to_pylist() if hasattr(column, "to_pylist") else column for column in batch.values()]  # Arrow's
    return [dict(zip(batch, values, strict=True)) for values in zip(*columns, strict=True)]


def videos_of(row: Mapping[str, Any]) -> Video | list[Video] | None:
    """Return the URI or the bytes of a row's video, or those of its videos.

    They are in `video_uri` or `video_url`, in the lists `video_uris` or `video_urls`, or in the video parts of OpenAI
    chat `messages`, whose images are left alone.

    Returns:
        The only video; a list of several, or of any number of a list column; None if the row names no video.

    Raises:
        VideoRefusedError: A cell names no video, or the messages cannot be read.
    """
    for name in _URI_COLUMNS:
        if _is_given(row.get(name)):
            return _video(row[name], name)
    for name in _LIST_COLUMNS:
        if _is_given(row.get(name)):
            return _videos(row[name], name)
    if not _is_given(row.get(_MESSAGES)):
        return None
    messages = row[_MESSAGES]
    try:
        given = json.loads(messages) if isinstance(messages, str) else without_nulls(messages)
        videos = parse_messages(given).videos
    except json.JSONDecodeError:
        raise VideoRefusedError("messages: the text is not JSON.") from None
    except NoVideoError:
        return None
    except ValueError as error:
        raise VideoRefusedError(f"messages: {error}.") from None
    return videos[0] if len(videos) == 1 else [*videos]


def _length(name: str, column: Any) -> int:  # noqa: ANN401 - whatever the caller holds
    if isinstance(column, str | bytes | os.PathLike) or not isinstance(column, Sized):
        raise ConfigurationError(f"The column {name} is a single {type(column).__name__}; put it in a list.")
    return len(column)


def _video(given: Any, name: str) -> Video:  # noqa: ANN401 - whatever the column holds
    if isinstance(given, Mapping):  # how Hugging Face's datasets hold a video
        given = given.get("bytes") or given.get("path")
    if isinstance(given, bytes | str) and given:
        return given
    if isinstance(given, os.PathLike):
        return str(given)
    raise VideoRefusedError(f"{name} is of type {type(given).__name__}; give a path, a URI, or the bytes of a video.")


def _videos(given: Any, name: str) -> list[Video]:  # noqa: ANN401 - whatever the column holds
    videos = list(given) if isinstance(given, list | tuple | np.ndarray) else []
    if not videos:
        raise VideoRefusedError(f"{name} is not a list of URIs; give at least one, or leave it empty.")
    return [_video(video, name) for video in videos]


def segment_of(row: Mapping[str, Any]) -> Segment:
    """Return the segment of its video that a row names in `start_s` and `end_s`.

    Raises:
        VideoRefusedError: They are not numbers, the segment is empty or starts before 0, or the row names several
            videos.
    """
    start_s, end_s = (_seconds(row, name) for name in ("start_s", "end_s"))
    if (start_s or 0.0) < 0 or (end_s is not None and end_s <= (start_s or 0.0)):
        raise VideoRefusedError(f"The segment from start_s {start_s} to end_s {end_s} is not valid; correct them.")
    segment = Segment.of(start_s, end_s)
    if not segment.is_whole and isinstance(videos_of(row), list):
        raise VideoRefusedError("start_s and end_s are given with several videos; leave them out.")
    return segment


def has_frames(row: Mapping[str, Any]) -> bool:
    """Return whether a row's `video` holds frames: images, an array, or frames packed with their metadata."""
    video = row.get(VIDEO)
    frames = video[0] if isinstance(video, tuple) and video else video
    return isinstance(frames, Sized) and not isinstance(frames, str | bytes) and len(frames) > 0


def _seconds(row: Mapping[str, Any], name: str) -> float | None:
    value = row.get(name)
    if not _is_given(value):
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise VideoRefusedError(f"{name} is {value!r}; it must be a number of seconds.")
    return float(value)


def _is_given(value: object) -> bool:
    is_nan = isinstance(value, float) and math.isnan(value)  # how a string column may represent null
    is_blank = isinstance(value, str) and not value
    return value is not None and not is_nan and not is_blank
