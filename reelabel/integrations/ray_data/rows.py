"""The videos and the segment that each row of a batch names."""

from __future__ import annotations

import json
import logging
import math
import numbers
import os
from collections.abc import Mapping, Sized
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from reelabel.errors import ConfigurationError, VideoRefusedError
from reelabel.integrations.chat_messages import read_messages, video_urls
from reelabel.segment import Segment

Video: TypeAlias = str | bytes  # its path or URI, or its own bytes

_URI_COLUMNS = ("video_uri", "video_url")
_LIST_COLUMNS = ("video_uris", "video_urls")
MESSAGES = "messages"
SOURCE_COLUMNS = (*_URI_COLUMNS, *_LIST_COLUMNS, MESSAGES)
VIDEO, VIDEO_META, VIDEO_FRAMES = "video", "video_meta", "video_frames"
_ADVICE = "give a path, a URI, or the bytes of a video"
_log = logging.getLogger(__name__)


def to_rows(batch: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Convert columns to rows; raise ConfigurationError if they are no columns of equal length."""
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

    Raises VideoRefusedError if the row names no video in a column that should, or its messages cannot be read.
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
    except RecursionError:
        raise VideoRefusedError("messages: nested too deeply.") from None
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
    if isinstance(given, bytearray | memoryview):  # as of DuckDB
        return bytes(given)
    return VideoRefusedError(f"{name} is of type {type(given).__name__}; {_ADVICE}.")


def _videos(given: Any, name: str) -> list[Video | VideoRefusedError]:  # noqa: ANN401 - whatever the column holds
    if not isinstance(given, list | tuple | np.ndarray) or len(given) == 0:
        raise VideoRefusedError(f"{name} is not a list of URIs; give at least one.")
    return [_video(video, name) for video in given]


def segment_of(row: Mapping[str, Any], videos: int) -> Segment:
    """Return the segment that a row names in `start_s` and `end_s`; raise VideoRefusedError if it is not valid."""
    start_s, end_s = (_seconds(row, name) for name in ("start_s", "end_s"))
    if (start_s or 0.0) < 0 or (end_s is not None and end_s <= (start_s or 0.0)):
        raise VideoRefusedError(f"The segment from start_s {start_s} to end_s {end_s} is not valid; correct them.")
    segment = Segment.of(start_s, end_s)
    if not segment.is_whole and videos > 1:
        raise VideoRefusedError("start_s and end_s are given with several videos; leave them out.")
    return segment


def _seconds(row: Mapping[str, Any], name: str) -> float | None:
    value = row.get(name)
    if not _is_given(value):
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise VideoRefusedError(f"{name} is {value!r}; it must be a number of seconds.")
    return float(value)


def _is_given(value: object) -> bool:
    is_nan = isinstance(value, numbers.Real) and value != value  # noqa: PLR0124 - NaN, how columns of any type may represent null
    is_blank = isinstance(value, str | bytes) and not value
    return value is not None and not is_nan and not is_blank
