"""What answers the questions of live sessions: the interface, and what crosses it."""

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
    items: tuple[Item, ...] = field(repr=False)  # in the order in which they are shown; at least one
    system_prompt: str | None = None  # None leaves it to the chat template
    has_audio: bool = False  # in these items or before them: models mark where a video with audio begins

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
    """The model behind a session, its limits, and the versions of packages."""

    model: str
    size_multiple_px: int
    max_frame_px: int
    takes_audio: bool = False
    produces_speech: bool = False
    versions: dict[str, str]


class LiveModel(Protocol):
    """Reads prefixes as they grow, and answers questions about them; thread-safe.

    Sessions see nothing of each other: what is cached for one is not used for another, even of the same pixels.
    """

    def start(self) -> None:
        """Start loading, or reload after a loss; return at once."""
        ...

    def wait_ready(self) -> LiveInfo:
        """Wait until questions can be answered.

        Raises:
            ModelError: The model cannot be loaded, or takes no live sessions.
        """
        ...

    def open(self, session: str) -> None:
        """Make a session known, under a name that no session had before."""
        ...

    def prefill(self, goal: Sequence[Prefix]) -> LiveDone | None:
        """Have the model read the next part of what a session's prompts begin with; blocks until it has.

        Called again, it goes on towards the goal of then. Questions go first.

        Args:
            goal: Prefixes of one session: the current one, and the one after the next eviction, if that is near.

        Returns:
            What was read; None if all of the goal has been, or nothing is read ahead.

        Raises:
            PromptTooLongError: A prefix has more tokens, or spans more positions, than the model takes.
            InferenceError: The model rejects a prefix, or the session has ended.
            EngineLostError: The engine was lost, and with it all that it had read.
        """
        ...

    def ask(self, prefix: Prefix, query: LiveQuery) -> Generator[AnswerPiece, None, None]:
        """Ask a question about a prefix, whether or not the model has read it; closing the iterator gives it up.

        Yields:
            Pieces of its text and of its speech, and at last `LiveDone`; with choices, only that.

        Raises:
            PromptTooLongError: Prefix and question have more tokens, or span more positions, than the model takes.
            PromptError: The question's text or choices are at fault.
            InferenceError: The model rejects the question.
            EngineLostError: The engine was lost; ask again.
        """
        ...

    def cancel(self, session: str) -> None:
        """End the question of a session that is being answered, if there is one: its iterator soon ends early."""
        ...

    def close_session(self, session: str) -> None:
        """End a session: give up what waits, and free its memory; idempotent."""
        ...

    def close(self) -> None: ...
