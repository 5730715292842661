"""Queries that wait for their answers, and standing questions, which become queries again and again."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.live.events import ResponseDone
    from tasks.live.messages import ErrorCode, VideoQuery

_EVERY_S = 1.0
_CHANGE_MARGIN = 0.2


@dataclass(slots=True, kw_only=True, eq=False)
class PendingQuery:
    """A query that has arrived and is not answered yet. Times are those of the monotonic clock."""

    number: int | None  # its number in the session, from 0; None while its client may never hear of it
    query: VideoQuery
    arrived_s: float
    deadline_s: float | None = None
    standing: Standing | None = None  # the question that it repeats
    is_cancelled: bool = False
    # The answer so far: its text, the milliseconds from the query's arrival to its first pieces, its length in speech.
    text: list[str] = field(default_factory=list)
    first_ms: float | None = None
    first_speech_ms: float | None = None
    speech_s: float = 0.0

    @property
    def waited_ms(self) -> float:
        return (time.monotonic() - self.arrived_s) * 1e3

    def discard_answer(self) -> None:
        self.text.clear()
        self.first_ms = self.first_speech_ms = None
        self.speech_s = 0.0


class Standing:
    """A standing question: when it is asked, and which of its answers are sent."""

    def __init__(self, query: VideoQuery, *, arrived_s: float) -> None:
        self.query, self.arrived_s = query, arrived_s
        self.is_pending = False  # asked and not answered yet
        self._next_s = -math.inf  # on the clock of the frames
        self._label: int | None = None  # of the last answer that was sent
        self._error: ErrorCode | None = None  # of the last query, if it failed

    def is_due(self, time_s: float) -> bool:
        return not self.is_pending and time_s >= self._next_s

    def begin(self, time_s: float) -> None:
        every_s = self.query.every_s or _EVERY_S
        self.is_pending = True
        is_first = math.isinf(self._next_s)
        self._next_s = time_s + every_s if is_first else max(self._next_s + every_s, time_s + every_s / 2)

    def is_news(self, done: ResponseDone) -> bool:
        """Whether to send an answer. With `on_change`: if its label leads the one sent last by the margin."""
        self._error = None
        if not self.query.on_change or self._label is None:
            return True
        assert done.choice is not None
        assert done.probabilities is not None
        margin = _CHANGE_MARGIN if self.query.change_margin is None else self.query.change_margin
        lead = done.probabilities[done.choice] - done.probabilities[self._label]
        return done.choice != self._label and lead >= margin

    def note_sent(self, done: ResponseDone) -> None:
        self._label = done.choice

    def is_new_error(self, code: ErrorCode) -> bool:
        """Whether to send an error: once, until there is an answer again."""
        previous, self._error = self._error, code
        return previous != code
