"""The views of a shard as they arrive, in groups to answer together."""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING

from reelabel.errors import JobError
from tasks.domain import RunPhase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from flows.shard.answering import AnswerContext, ShardOutcome, Shown
    from flows.shard.extract import ViewStream
    from reelabel.frames.extractor import ExtractedVideo
    from tasks.domain import View

# Every group has a fixed cost: if the engine outpaces extraction, a short wait merges small groups.
_MIN_GROUP = 8
_MAX_GROUP_WAIT_S = 0.1


class _Arrivals:
    """Views as they arrive, and what jobs show that is complete by then."""

    def __init__(self, wanted: Iterable[Shown]) -> None:
        """Start with no view of what jobs show."""
        self.complete: deque[Shown] = deque()
        self._outcomes: dict[View, ExtractedVideo | JobError] = {}
        self._missing: dict[Shown, int] = {}
        self._waiting: dict[View, list[Shown]] = {}
        for views in wanted:
            self._missing[views] = len(set(views))
            for view in set(views):
                self._waiting.setdefault(view, []).append(views)

    def add(self, ready: Mapping[View, ExtractedVideo | JobError]) -> None:
        """Add views."""
        self._outcomes |= ready
        for views in chain.from_iterable(self._waiting.pop(view, ()) for view in ready):
            self._missing[views] -= 1
            if not self._missing[views]:
                self.complete.append(views)

    def take(self, most_bytes: int) -> dict[Shown, list[ExtractedVideo | JobError]]:
        """Take what is complete, in order, as long as its frames fit into `most_bytes`; at least one."""
        taken: dict[Shown, list[ExtractedVideo | JobError]] = {}
        seen: set[View] = set()
        size_bytes = 0
        while self.complete:
            views = self.complete[0]
            size_bytes += sum(map(self._bytes, {*views} - seen))
            if taken and size_bytes > most_bytes:
                break
            seen |= {*views}
            taken[self.complete.popleft()] = [self._outcomes[view] for view in views]
        return taken

    def _bytes(self, view: View) -> int:
        outcome = self._outcomes[view]
        return 0 if isinstance(outcome, JobError) else outcome.frame_bytes


def group_arrivals(
    stream: ViewStream, wanted: Iterable[Shown], context: AnswerContext, shard_outcome: ShardOutcome
) -> Iterator[dict[Shown, list[ExtractedVideo | JobError]]]:
    """Group what is complete so that its frames fit into one batch; while one is answered, the next one grows."""
    arrivals, consumed = _Arrivals(wanted), 0
    while True:
        with context.profile.doing(RunPhase.DECODE):
            complete = len(arrivals.complete)
            ready = stream.after(
                consumed, min_count=_MIN_GROUP - complete, max_wait_s=_MAX_GROUP_WAIT_S, needs_one=not complete
            )
        if not ready and not complete:
            return
        consumed += len(ready)
        arrivals.add(ready)
        shard_outcome.videos += [outcome for outcome in ready.values() if not isinstance(outcome, JobError)]
        if group := arrivals.take(context.batch_bytes):
            yield group
