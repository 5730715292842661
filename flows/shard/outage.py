"""Questions to an inference server that becomes unavailable, which one of them may have caused."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import replace
from typing import TYPE_CHECKING

from flows.shard.retry import retry_outage
from infra.errors import ServerFailedError, ServerUnavailableError
from reelabel_engine.protocol import QuestionFailure

if TYPE_CHECKING:
    from reelabel_engine.protocol import Batch
    from tasks.model.backend import InferenceBackend, Reply

_ENDS_PER_QUESTION = 2  # of the server, while a question is asked alone, after which it fails
_MAX_OUTAGES = 5  # in a row, without a reply


def answer_through_outages(backend: InferenceBackend, batch: Batch) -> list[Reply]:
    """Answer a batch; if the server becomes unavailable, wait for it, and ask again only what it has not answered.

    What was asked in vain may be what ends the server. It is asked again alone, and fails if that ends the server
    twice, since the server then answers others again.

    Raises:
        TransientError: As `InferenceBackend.answer`, or the server stays unavailable.
    """
    replies: dict[int, Reply] = {}
    faults: dict[int, list[ServerUnavailableError]] = defaultdict(list)
    ends, outages = Counter[int](), 0
    waiting = deque([tuple(range(len(batch.questions)))])
    while waiting:
        places = waiting.popleft()
        is_alone = places[0] in faults
        asked = replace(batch.only(tuple(batch.questions[place] for place in places)), is_alone=is_alone)
        try:
            received = dict(enumerate(backend.answer(asked)))
        except ServerUnavailableError as error:
            retry_outage(backend.wait_ready)
            received = dict(error.replies)
            for at, found in error.faults.items():
                faults[places[at]] += found
            ends[places[0]] += is_alone and bool(error.faults)
            if ends[places[0]] == _ENDS_PER_QUESTION:
                received = {0: QuestionFailure.of(ServerFailedError.after(faults[places[0]]))}
            outages = 0 if received else outages + 1
            if outages > _MAX_OUTAGES:
                raise
        replies |= {places[at]: reply for at, reply in received.items()}
        rest = [place for place in places if place not in replies]
        if together := tuple(place for place in rest if place not in faults):
            waiting.appendleft(together)
        waiting.extend((place,) for place in rest if place in faults)
    return [replies[place] for place in range(len(batch.questions))]
