"""A shard between its extraction and its inference: what its jobs are shown, as it becomes ready."""

from __future__ import annotations

import threading
from itertools import islice
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from infra.errors import VideoError
    from tasks.domain import View
    from tasks.frames.prepare import PreparedVideo
    from tasks.plans.extracted import ExtractedShard


class Arriving:
    """What became of views, in the order in which it did, so that nobody who asks about one waits for the others.

    Safe to use from many threads. It can be read again from the first view on.
    """

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._outcomes: dict[View, PreparedVideo | VideoError] = {}
        self._extracted: ExtractedShard | None = None
        self._is_over = threading.Event()
        self._changed = threading.Condition()

    @classmethod
    def whole(cls, extracted: ExtractedShard) -> Self:
        """Hold a shard whose extraction is over."""
        arriving = cls()
        arriving._outcomes = extracted.prepared | extracted.faults
        arriving.end(extracted)
        return arriving

    def add(self, view: View, outcome: PreparedVideo | VideoError) -> None:
        """Say what became of a view; where it has been said, as by an extraction that begins anew, that stays."""
        with self._changed:
            self._outcomes.setdefault(view, outcome)
            self._changed.notify_all()

    def end(self, extracted: ExtractedShard | None) -> None:
        """Say that nothing more comes.

        Args:
            extracted: The whole shard; None where its extraction came to nothing, unless it was whole before.
        """
        with self._changed:
            self._extracted = self._extracted or extracted
            self._is_over.set()
            self._changed.notify_all()

    def after(self, count: int, *, few: int = 1, patience_s: float = 0.0) -> dict[View, PreparedVideo | VideoError]:
        """Wait for more than the first `count` views, and give them; empty where nothing more comes.

        Args:
            count: Views that are known.
            few: Where fewer than so many are new, others are waited for.
            patience_s: How long.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_over.is_set() or len(self._outcomes) > count)
            is_few = len(self._outcomes) < count + few
        if is_few:
            self._is_over.wait(patience_s)
        with self._changed:
            return dict(islice(self._outcomes.items(), count, None))

    @property
    def extracted(self) -> ExtractedShard | None:
        """The whole shard, once it is over; None where its extraction came to nothing."""
        return self._extracted
