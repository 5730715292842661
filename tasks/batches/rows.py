"""Rows of a batch: which video each is about, and whether its frames are there already."""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Sized
from typing import TYPE_CHECKING, Any

from infra.errors import ConfigurationError, VideoRefusedError
from tasks.domain import Segment
from tasks.manifest.messages import read_messages, without_nulls

if TYPE_CHECKING:
    from collections.abc import Mapping

_URI_COLUMNS = ("video_uri", "video_url")
_MESSAGES = "messages"
SOURCE_COLUMNS = (*_URI_COLUMNS, _MESSAGES)
VIDEO, VIDEO_META = "video", "video_meta"


def rows_of(batch: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Turn columns into rows.

    Raises:
        ConfigurationError: The batch is no dictionary of columns, or none of them can name a video.
    """
    if not isinstance(batch, dict):
        raise ConfigurationError(
            f"A batch came as {type(batch).__name__}; let map_batches give dictionaries with batch_format='numpy'."
        )
    if not batch.keys() & {*SOURCE_COLUMNS, VIDEO}:
        raise ConfigurationError(
            f"No column names a video; rename one to {', '.join(SOURCE_COLUMNS[:-1])} or {SOURCE_COLUMNS[-1]}."
        )
    return [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]


def source_of(row: Mapping[str, Any]) -> str:
    """Find a row's video: in `video_uri`, `video_url` or the one video part of its OpenAI chat `messages`.

    Raises:
        VideoRefusedError: There is none, or more than one.
    """
    for name in _URI_COLUMNS:
        if _is_given(row.get(name)):
            return str(row[name])
    if not _is_given(row.get(_MESSAGES)):
        raise VideoRefusedError(f"The row names no video; give one in {' or '.join(SOURCE_COLUMNS)}.")
    messages = row[_MESSAGES]
    try:
        return read_messages(json.loads(messages) if isinstance(messages, str) else without_nulls(messages)).video_uri
    except json.JSONDecodeError:
        raise VideoRefusedError("messages: the text is not JSON.") from None
    except ValueError as error:
        raise VideoRefusedError(f"messages: {error}.") from None


def segment_of(row: Mapping[str, Any]) -> Segment:
    """Read the part of its video that a row is about, from `start_s` and `end_s`, where they are given.

    Raises:
        VideoRefusedError: They are no numbers, or no part of a video lies between them.
    """
    start_s, end_s = (_seconds(row, name) for name in ("start_s", "end_s"))
    if (start_s or 0.0) < 0 or (end_s is not None and end_s <= (start_s or 0.0)):
        raise VideoRefusedError(f"No part of a video lies between start_s {start_s} and end_s {end_s}; correct them.")
    return Segment.of(start_s, end_s)


def has_frames(row: Mapping[str, Any]) -> bool:
    """Tell whether a row's `video` holds frames: images, an array, or frames packed with their metadata."""
    video = row.get(VIDEO)
    frames = video[0] if isinstance(video, tuple) and video else video
    return isinstance(frames, Sized) and not isinstance(frames, str | bytes) and len(frames) > 0


def _seconds(row: Mapping[str, Any], name: str) -> float | None:
    value = row.get(name)
    if not _is_given(value):
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise VideoRefusedError(f"{name} is {value!r}; give seconds, as a number.")
    return float(value)


def _is_given(value: object) -> bool:
    is_nan = isinstance(value, float) and math.isnan(value)  # what a column of texts may hold for a null
    is_blank = isinstance(value, str) and not value
    return value is not None and not is_nan and not is_blank
