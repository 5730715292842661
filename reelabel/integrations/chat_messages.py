"""Questions in OpenAI's chat form: videos, images and text, in messages with content parts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from reelabel.text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_Kind = Literal["text", "video", "image"]
_ROLES = {"system": "system", "developer": "system", "user": "user"}
_KINDS: dict[str, _Kind] = {
    "text": "text",
    "video": "video",
    "video_url": "video",
    "image": "image",
    "image_url": "image",
}
_INCOMPLETE = "a message has no role or no content"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageContent:
    """The content of messages: kind and URI of each video and image, in order, and the text parts, one per line.

    `system_prompt` is that of the system messages; None without any.
    """

    media: tuple[tuple[Literal["video", "image"], str], ...]
    prompt: str
    system_prompt: str | None

    @property
    def videos(self) -> list[str]:
        return [uri for kind, uri in self.media if kind == "video"]


def parse_messages(messages: object) -> MessageContent:
    """Parse messages from decoded JSON; ValueError, with a clause without a full stop, if they do not ask about videos.

    A video is a part `{"type": "video_url", "video_url": {"url": ...}}` or `{"type": "video", "video": ...}` with one
    URL, and an image likewise one of type `image_url` or `image`.
    """
    parts = [*_parts(messages)]
    _check_unicode(value for _, _, value in parts)
    media = tuple((kind, value) for _, kind, value in parts if kind in ("video", "image"))
    if not any(kind == "video" for kind, _ in media):
        raise ValueError("expected a video, found none")
    return MessageContent(
        media=media,
        prompt="\n".join(value for role, kind, value in parts if kind == "text" and role == "user"),
        system_prompt="\n".join(value for role, kind, value in parts if kind == "text" and role == "system") or None,
    )


def video_urls(messages: object) -> list[str]:
    """Return the URLs of the videos in messages of any role, in order; all other parts are left alone.

    Raises ValueError, with a clause without a full stop, if these are not messages, or a video part has no URL.
    """
    contents = (message.get("content") for message in _messages(messages))  # an assistant's may be tool calls alone
    parts = (part for content in contents if isinstance(content, list) for part in content if _is_video(part))
    urls = [url for _, url in map(_part, parts)]
    _check_unicode(urls)
    return urls


def mark_videos(messages: list[Any]) -> list[Any]:
    """Replace each video of messages by the placeholder that chat templates expect if frames are passed separately."""
    return [
        message | {"content": [{"type": "video"} if _is_video(part) else part for part in message["content"]]}
        if isinstance(message.get("content"), list)
        else message
        for message in messages
    ]


def _is_video(part: object) -> bool:
    return isinstance(part, dict) and _KINDS.get(str(part.get("type"))) == "video"


def read_messages(value: Any) -> Any:  # noqa: ANN401 - JSON, or what Arrow makes of it
    """Read messages from JSON, or from the cell of a column; JSONDecodeError if the text is not JSON."""
    return json.loads(value) if isinstance(value, str) else without_nulls(value)


def without_nulls(value: Any) -> Any:  # noqa: ANN401 - any JSON value, or what Arrow makes of one
    """Undo what columns do to JSON: turn arrays back into lists, and drop the nulls of absent fields."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list | np.ndarray) else value


def _parts(messages: object) -> Iterator[tuple[str, _Kind, str]]:
    """Yield role (`system` or `user`), kind and value of every part."""
    for message in _messages(messages):
        if "content" not in message:
            raise ValueError(_INCOMPLETE)
        role = _ROLES.get(str(message["role"]))
        if role is None:
            raise ValueError(f"a message has the role {quoted(message['role'])}; only system and user are supported")
        for part in _content(message["content"]):
            yield role, *_part(part)


def _messages(messages: object) -> Iterator[dict[str, Any]]:
    if not isinstance(messages, list):
        raise ValueError("not a list of messages")  # noqa: TRY004 - a fault of the data, reported like its others
    for message in messages:
        if not isinstance(message, dict) or "role" not in message:
            raise ValueError(_INCOMPLETE)
        yield message


def _content(content: object) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise ValueError("the content of a message is neither text nor a list of parts")
    return content


def _part(part: dict[str, Any]) -> tuple[_Kind, str]:
    name = part.get("type")
    kind = _KINDS.get(str(name))
    if kind is None:
        raise ValueError(f"a part has the type {quoted(name)}; only text, video_url and image_url are supported")
    value = part.get(str(name))
    if isinstance(value, dict):
        value = value.get("url")
    if isinstance(value, list) and kind == "video":
        raise ValueError("a video given as a list of frames; give the URL of one video file")
    if not isinstance(value, str):
        raise ValueError(f"a part of type {quoted(name)} without its {'text' if kind == 'text' else 'URL'}")  # noqa: TRY004
    return kind, value


def _check_unicode(values: Iterable[str]) -> None:
    if not all(map(is_valid_unicode, values)):
        raise ValueError("a part contains an unpaired surrogate, which is not a valid character")


def is_valid_unicode(value: str) -> bool:
    """Return whether a string can be encoded: JSON may hold half of a surrogate pair, which is no character."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
