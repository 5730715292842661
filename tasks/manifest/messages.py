"""Questions as OpenAI chat messages: one video and its text, in content parts."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tasks.manifest.fault import Fault, row_fault
from tasks.manifest.schema import ROW

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROLES = {"system": "system", "developer": "system", "user": "user"}
_KINDS = {"text": "text", "video": "video", "video_url": "video"}
# The columns that messages replace, in the order of `MessageContent`'s attributes.
_REPLACED = ("video_uri", "prompt", "system_prompt")
_QUESTION = pl.Struct(dict.fromkeys(_REPLACED, pl.String))


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageContent:
    """The content of messages.

    Attributes:
        video_uri: The only video.
        prompt: Text parts of the user messages, one per line.
        system_prompt: Text parts of the system messages, one per line; None without any.
    """

    video_uri: str
    prompt: str
    system_prompt: str | None


def parse_messages(messages: object) -> MessageContent:
    """Parse messages from decoded JSON.

    A video is a part `{"type": "video_url", "video_url": {"url": ...}}` or `{"type": "video",
    "video": ...}` with one URL.

    Raises:
        ValueError: These are not messages, or do not ask about exactly one video; the message is a clause
            without a full stop.
    """
    parts = [*_parts(messages)]
    if not all(is_valid_unicode(value) for _, _, value in parts):
        raise ValueError("a part contains an unpaired surrogate, which is not a valid character")
    videos = [value for _, kind, value in parts if kind == "video"]
    if len(videos) != 1:
        raise ValueError(f"expected one video, found {len(videos)}")
    return MessageContent(
        video_uri=videos[0],
        prompt="\n".join(value for role, kind, value in parts if kind == "text" and role == "user"),
        system_prompt="\n".join(value for role, kind, value in parts if kind == "text" and role == "system") or None,
    )


def messages_as_json(column: pl.Series) -> pl.Series:
    """Convert messages from lists of structs to JSON; fields that a part does not have are omitted.

    Values that JSON cannot represent become null, and are reported later if they are needed.
    """
    texts = [
        None if value is None else json.dumps(without_nulls(value), default=lambda _: None)
        for value in column.to_list()
    ]
    return pl.Series(column.name, texts, dtype=pl.String)


def without_nulls(value: Any) -> Any:  # noqa: ANN401 - any JSON value, or what Arrow makes of one
    """Undo what columns do to JSON: turn arrays back into lists, and drop the nulls of absent fields."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list | np.ndarray) else value


def fill_from_messages(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[Fault]]:
    """Fill `video_uri`, `prompt` and `system_prompt` of rows that have messages.

    Args:
        frame: The manifest's columns, with `messages` as JSON, and row numbers as `ROW`.

    Returns:
        The frame, and the faults of its messages; rows with a fault are unchanged.
    """
    broken: dict[str, list[tuple[int, object]]] = defaultdict(list)
    if frame["messages"].null_count() == len(frame):
        return frame, []
    questions: list[dict[str, str | None] | None] = [None] * len(frame)
    rows = frame.select(ROW, "job_id", "messages", *_REPLACED).with_row_index("place").drop_nulls("messages")
    for row in rows.iter_rows(named=True):
        try:
            questions[row["place"]] = _question(row)
        except ValueError as error:
            broken[f"messages: {error}."].append((row[ROW], row["job_id"]))
    faults = [row_fault(rule, "job_id", found) for rule, found in broken.items()]
    asked = pl.Series("asked", questions, dtype=_QUESTION)
    given = [pl.coalesce(asked.struct.field(name), pl.col(name)).alias(name) for name in _REPLACED]
    return frame.with_columns(given), faults


def _question(row: dict[str, Any]) -> dict[str, str | None]:
    try:
        messages = json.loads(row["messages"])
    except (ValueError, RecursionError):  # the latter if nested too deeply
        raise ValueError("not JSON") from None
    question = parse_messages(messages)
    found = {name: getattr(question, name) for name in _REPLACED}
    twice = [name for name in _REPLACED if found[name] is not None and row[name] is not None]
    if twice:
        raise ValueError(f"{' and '.join(twice)} given both in messages and in a column; leave one out")
    return found


def _parts(messages: object) -> Iterator[tuple[str, str, str]]:
    """Yield role (`system` or `user`), kind (`text` or `video`) and value of every part."""
    if not isinstance(messages, list):
        raise ValueError("not a list of messages")  # noqa: TRY004 - a fault of the data, reported like its others
    for message in messages:
        if not isinstance(message, dict) or "role" not in message or "content" not in message:
            raise ValueError("a message has no role or no content")
        role = _ROLES.get(str(message["role"]))
        if role is None:
            raise ValueError(f"a message has the role {message['role']!r}; only system and user are supported")
        for part in _content(message["content"]):
            yield role, *_part(part)


def _content(content: object) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise ValueError("the content of a message is neither text nor a list of parts")
    return content


def _part(part: dict[str, Any]) -> tuple[str, str]:
    name = part.get("type")
    kind = _KINDS.get(str(name))
    if kind is None:
        raise ValueError(f"a part has the type {name!r}; only text and one video_url are supported")
    value = part.get(str(name))
    if isinstance(value, dict):
        value = value.get("url")
    if isinstance(value, list) and kind == "video":
        raise ValueError("a video given as a list of frames; give the URL of one video file")
    if not isinstance(value, str):
        raise ValueError(f"a part of type {name!r} without its {'URL' if kind == 'video' else 'text'}")  # noqa: TRY004
    return kind, value


def is_valid_unicode(value: str) -> bool:
    """Whether a string can be written: JSON may hold one half of a surrogate pair, which is no character."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
