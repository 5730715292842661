"""Rows of a batch: the video and segment that each names, and the frames it may already hold."""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Sized
from typing import TYPE_CHECKING, Any

from reelabel.errors import ConfigurationError, VideoRefusedError
from reelabel.integrations.chat_messages import NoVideoError, parse_messages, without_nulls
from reelabel.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Mapping

_URI_COLUMNS = ("video_uri", "video_url")
_MESSAGES = "messages"
SOURCE_COLUMNS = (*_URI_COLUMNS, _MESSAGES)
VIDEO, VIDEO_META = "video", "video_meta"


def to_rows(batch: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Convert columns to rows.

    Raises:
        ConfigurationError: The batch is not a dictionary of columns, or no column can name a video.
    """
    if not isinstance(batch, dict):
        raise ConfigurationError(
            f"The batch is of type {type(batch).__name__}, not a dict; call map_batches with batch_format='numpy'."
        )
    if not batch.keys() & {*SOURCE_COLUMNS, VIDEO}:
        raise ConfigurationError(
            f"The batch has no column that names a video; it needs {', '.join(SOURCE_COLUMNS[:-1])} or "
            f"{SOURCE_COLUMNS[-1]}."
        )
    return [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]


def video_uri_of(row: Mapping[str, Any]) -> str | None:
    """Return the URI of a row's video, from `video_uri`, `video_url` or the video part of its OpenAI chat `messages`.

    Returns:
        The URI; None if the row names no video.

    Raises:
        VideoRefusedError: The row names more than one video, or its messages cannot be read.
    """
    for name in _URI_COLUMNS:
        if _is_given(row.get(name)):
            return str(row[name])
    if not _is_given(row.get(_MESSAGES)):
        return None
    messages = row[_MESSAGES]
    try:
        return parse_messages(json.loads(messages) if isinstance(messages, str) else without_nulls(messages)).only_video
    except json.JSONDecodeError:
        raise VideoRefusedError("messages: the text is not JSON.") from None
    except NoVideoError:
        return None
    except ValueError as error:
        raise VideoRefusedError(f"messages: {error}.") from None


def segment_of(row: Mapping[str, Any]) -> Segment:
    """Return the segment of its video that a row names in `start_s` and `end_s`.

    Raises:
        VideoRefusedError: They are not numbers, or the segment is empty or starts before 0.
    """
    start_s, end_s = (_seconds(row, name) for name in ("start_s", "end_s"))
    if (start_s or 0.0) < 0 or (end_s is not None and end_s <= (start_s or 0.0)):
        raise VideoRefusedError(f"The segment from start_s {start_s} to end_s {end_s} is not valid; correct them.")
    return Segment.of(start_s, end_s)


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
