"""The interface of models that answer live sessions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from reelabel_engine.live_items import AudioSpan, Item
from reelabel_engine.protocol import LiveDone, LiveQuery, LiveText

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prefix:
    """The prompt prefix that is prefilled before a query arrives."""

    session: str  # as given to `LiveModel.open`
    items: tuple[Item, ...] = field(repr=False)  # in their order in the prompt; at least one
    system_prompt: str | None = None  # None: that of the chat template
    has_audio: bool = False  # now or earlier in the session: prompts of videos with audio begin differently

    @property
    def frames(self) -> int:
        return sum(item.frames for item in self.items)

    @property
    def audio_s(self) -> float:
        return sum(item.seconds for item in self.items if isinstance(item, AudioSpan))


SPEECH_HZ = 24_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """The next piece of an answer in speech: 16-bit little-endian PCM, one channel of `SPEECH_HZ`."""

    data: bytes = field(repr=False)

    @property
    def seconds(self) -> float:
        return len(self.data) / (2 * SPEECH_HZ)


AnswerPiece: TypeAlias = LiveText | Speech | LiveDone


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveInfo:
    """The model of a session, its limits, and the versions of packages."""

    model: str
    size_multiple_px: int
    max_frame_px: int
    takes_audio: bool = False
    produces_speech: bool = False
    versions: dict[str, str]


class LiveModel(Protocol):
    """Prefills prefixes as they grow, and answers questions about them. Thread-safe.

    Sessions are isolated: no cache entry of one is used for another, even of the same pixels.
    """

    def wait_ready(self) -> LiveInfo:
        """Wait until questions can be answered.

        Raises:
            ModelError: The model cannot be loaded, or does not support live sessions.
        """
        ...

    def open(self, session: str) -> None:
        """Open a session under a name that no other had."""
        ...

    def prefill(self, goal: Sequence[Prefix]) -> LiveDone | None:
        """Prefill the next part of a session's prefixes, and wait until that is done; questions have priority.

        Args:
            goal: Prefixes of one session: the current one, and the one that replaces it at the next eviction.

        Returns:
            What was prefilled; None if everything is, or the model prefills nothing.

        Raises:
            PromptTooLongError: A prefix has more tokens, or spans more positions, than the model takes.
            InferenceError: The model rejects a prefix, or the session has ended.
            EngineLostError: The engine was lost, with everything that it had prefilled.
        """
        ...

    def ask(self, prefix: Prefix, query: LiveQuery) -> Generator[AnswerPiece, None, None]:
        """Ask a question about a prefix, prefilled or not; closing the generator cancels it.

        Yields:
            Pieces of text and speech, and finally `LiveDone`; with choices, only that.

        Raises:
            PromptTooLongError: Prefix and question have more tokens, or span more positions, than the model takes.
            PromptError: The question's text or choices are at fault.
            InferenceError: The model rejects the question.
            EngineLostError: The engine was lost; ask again.
        """
        ...

    def cancel(self, session: str) -> None:
        """Cancel the question of a session that is being answered, if any; its generator ends early."""
        ...

    def close_session(self, session: str) -> None:
        """Close a session: cancel its requests, and free its memory. Idempotent."""
        ...
