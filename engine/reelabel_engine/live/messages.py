"""What crosses the boundary between the service and the engine's process for live sessions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from reelabel_engine.protocol import QuestionFailure

if TYPE_CHECKING:
    from reelabel_engine.live.items import Item


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A question about a prefix.

    Attributes:
        text: The question with its choices, if it has any.
        choices: The answers, in order; empty for an answer in free text.
        scoring: With choices, score the choice's letter, or the first token of its text.
        max_tokens: Maximum tokens of an answer in free text.
        temperature: Of an answer in free text; 0 takes the most probable token each time.
        top_p: Of an answer in free text.
        seed: Of an answer in free text; None draws one.
    """

    text: str
    choices: tuple[str, ...] = ()
    scoring: Literal["letter", "text"] = "letter"
    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRequest:
    """A prefix to read, or a question about one.

    Attributes:
        number: Unique within one life of the engine.
        session: The session's name.
        salt: Keeps what is cached for the session from others.
        system_prompt: None leaves it to the chat template.
        hashes: Of all items of the prefix, in order.
        items: Those that the engine's process does not have yet.
        fresh: How many of the last items the model has probably not read yet.
        query: None reads the prefix.
        has_audio: Whether the session has had audio.
    """

    number: int
    session: str
    salt: str = field(repr=False)
    system_prompt: str | None
    hashes: tuple[str, ...] = field(repr=False)
    items: tuple[Item, ...] = field(repr=False)
    fresh: int
    query: Query | None = None
    has_audio: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDrop:
    """Items that no prompt of a session will have again; None are all of them."""

    session: str
    hashes: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveGiveUp:
    """A question whose answer nobody waits for any more."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveText:
    """The next tokens of an answer; the text may be empty, as some tokens are parts of a character."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDone:
    """A request has ended; its answer, if it was a question."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int = 0
    finish_reason: Literal["stop", "length"] = "stop"
    probabilities: tuple[float, ...] = ()


LiveReply = LiveText | LiveDone | QuestionFailure
