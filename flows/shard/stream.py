"""A stream of a shard's views from extraction to inference, as they become ready."""

from __future__ import annotations

import math
import threading
from itertools import islice
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from reelabel.errors import VideoError
    from reelabel.frames.extractor import ExtractedVideo
    from tasks.domain import View
    from tasks.plans.extracted import ExtractedShard


class ViewStream:
    """Outcomes of views in the order of their completion, so that inference need not wait for the whole shard.

    Thread-safe, and can be read again from the first view.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._outcomes: dict[View, ExtractedVideo | VideoError] = {}
        self._extracted: ExtractedShard | None = None
        self._expected: int | None = None
        self._is_over = threading.Event()
        self._changed = threading.Condition()

    @classmethod
    def whole(cls, extracted: ExtractedShard) -> Self:
        """Return the stream of a shard whose extraction has ended."""
        stream = cls()
        stream._outcomes = dict(extracted.outcomes)
        stream.end(extracted)
        return stream

    def expect(self, views: int) -> None:
        """Set the number of views to come in total."""
        self._expected = views

    @property
    def left(self) -> float:
        """Number of views to come; infinite before it is known, and 0 after the end."""
        if self._is_over.is_set():
            return 0
        return math.inf if self._expected is None else self._expected - len(self._outcomes)

    def add(self, view: View, outcome: ExtractedVideo | VideoError) -> None:
        """Add the outcome of a view; if it has one, as after a retried extraction, the first is kept."""
        with self._changed:
            self._outcomes.setdefault(view, outcome)
            self._changed.notify_all()

    def end(self, extracted: ExtractedShard | None) -> None:
        """End the stream.

        Args:
            extracted: The extracted shard, or None if the extraction failed; an earlier shard is kept.
        """
        with self._changed:
            self._extracted = self._extracted or extracted
            self._is_over.set()
            self._changed.notify_all()

    def after(
        self, count: int, *, min_count: int = 1, max_wait_s: float = 0.0
    ) -> dict[View, ExtractedVideo | VideoError]:
        """Wait for views beyond the first `count`, and return them; empty at the end of the stream.

        Args:
            count: Number of views already read.
            min_count: If fewer than this many are new, wait for the end of the stream, for up to `max_wait_s`.
            max_wait_s: Longest such wait, in seconds.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_over.is_set() or len(self._outcomes) > count)
            is_short = len(self._outcomes) < count + min_count
        if is_short:
            self._is_over.wait(max_wait_s)
        with self._changed:
            return dict(islice(self._outcomes.items(), count, None))

    @property
    def extracted(self) -> ExtractedShard | None:
        """The extracted shard, after the end; None if its extraction failed."""
        return self._extracted
