"""Questions that are asked again as the window moves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.live.events import ResponseDone
    from tasks.live.messages import ErrorCode, VideoQuery

_EVERY_S = 1.0  # to notice a change
_CHANGE_MARGIN = 0.2


class Standing:
    """A standing question: when it is asked, and which of its answers are sent."""

    def __init__(self, query: VideoQuery) -> None:
        self.query = query
        self.is_open = False  # asked and not answered yet: it is not asked again meanwhile
        self._next_s = -math.inf  # on the session's clock
        self._label: int | None = None  # that was sent last
        self._fault: ErrorCode | None = None

    def is_due(self, time_s: float) -> bool:
        return not self.is_open and time_s >= self._next_s

    def begin(self, time_s: float) -> None:
        every_s = self.query.every_s or _EVERY_S
        self.is_open = True
        is_first = math.isinf(self._next_s)
        self._next_s = time_s + every_s if is_first else max(self._next_s + every_s, time_s + every_s / 2)

    def is_news(self, done: ResponseDone) -> bool:
        """Return whether an answer is sent: each, or one whose label leads the one sent last clearly enough."""
        self._fault = None
        if not self.query.on_change or self._label is None:
            return True
        assert done.choice is not None
        assert done.probabilities is not None
        margin = _CHANGE_MARGIN if self.query.change_margin is None else self.query.change_margin
        lead = done.probabilities[done.choice] - done.probabilities[self._label]
        return done.choice != self._label and lead >= margin

    def note_sent(self, done: ResponseDone) -> None:
        self._label = done.choice

    def is_new_fault(self, code: ErrorCode) -> bool:
        """Return whether it is sent why there is no answer: once, until there is one again."""
        was, self._fault = self._fault, code
        return was != code
