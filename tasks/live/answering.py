"""How a query of a session is answered, recorded, and told."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from infra.errors import EngineLostError, InferenceError, PromptError, PromptTooLongError
from reelabel.errors import ReelabelError, TransientError
from tasks.live import protocol
from tasks.live.model import Delta, LiveQuery
from tasks.live.protocol import MessageRefusedError
from tasks.model.prompts.prompt import render_question

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from tasks.live.model import LiveAnswer, Prefix
    from tasks.live.outbox import Outbox
    from tasks.live.setup import LiveSetup

_ASKED_AGAIN = 3  # times, if the engine is lost
_PAUSE_S = 0.5
_RECORD_AGAIN_S = (0.5, 2.0, 5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A query that has arrived."""

    number: int
    query: protocol.VideoQuery
    arrived_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a query sees.

    Attributes:
        query: Number of the query.
        prefix: Its frames; None if there is none yet.
        asked_s: When it was asked, in seconds since the first frame.
        arrived_s: The same by the monotonic clock.
        sink_frames: Frames of the sink.
        first_frame_s: Time of the first frame after those.
        last_frame_s: Time of the last frame.
        last_frame: Its number, and its client's id of it.
        evicted: Kept frames that have left the window.
    """

    query: int
    prefix: Prefix | None
    asked_s: float
    arrived_s: float
    sink_frames: int
    first_frame_s: float
    last_frame_s: float
    last_frame: tuple[int, str | None]
    evicted: int

    @property
    def waited_ms(self) -> float:
        """Milliseconds since it was asked."""
        return (time.monotonic() - self.arrived_s) * 1e3


class Record(Protocol):
    """Where a session leaves its frames and answers; all but `keep` may block."""

    def keep(self, *, time_s: float, image: npt.NDArray[np.uint8]) -> None:
        """Take a kept frame; never blocks."""

    def answer(
        self, query: protocol.VideoQuery, seen: Seen, outcome: protocol.ResponseDone | MessageRefusedError
    ) -> None:
        """Write the row of a query that has ended.

        Raises:
            TransientError: It cannot be written now.
        """

    def close(self, reason: str, stats: protocol.SessionStats) -> None:
        """Write what remains.

        Raises:
            TransientError: It cannot be written now.
        """


class Answerer:
    """Answers the queries of one session, one after the other."""

    def __init__(
        self,
        setup: LiveSetup,
        config: protocol.SessionConfig,
        outbox: Outbox,
        record: Record | None,
        *,
        is_ending: Callable[[], bool],
        on_loss: Callable[[], None],
    ) -> None:
        """Prepare.

        Args:
            setup: What answers.
            config: What the client asked for.
            outbox: Where answers go.
            record: Where they are recorded.
            is_ending: Whether to give up.
            on_loss: Called when the engine is lost.
        """
        self._setup, self._config, self._outbox, self._record = setup, config, outbox, record
        self._is_ending, self._on_loss = is_ending, on_loss

    def answer(self, asked: Asked, seen: Seen) -> bool:
        """Answer a query; return whether it was."""
        self._begin(asked)
        try:
            done = self._ask_model(asked, seen)
            if done is not None:
                self._write(asked, seen, done)
        except MessageRefusedError as refused:
            self._refuse(asked, seen, refused)
            return False
        if done is None:  # the session ends
            return False
        self._outbox.put(done)
        self._outbox.put(protocol.TextDone(query=asked.number, text=done.text))
        return True

    def _begin(self, asked: Asked) -> None:
        self._outbox.put(protocol.ResponseStart(query=asked.number, query_id=asked.query.query_id))

    def _refuse(self, asked: Asked, seen: Seen, refused: MessageRefusedError) -> None:
        if refused.code != "unavailable":
            with suppress(MessageRefusedError):
                self._write(asked, seen, refused)
        self._outbox.put(
            protocol.ErrorEvent(
                code=refused.code, message=refused.message, query=asked.number, query_id=asked.query.query_id
            )
        )

    def _ask_model(self, asked: Asked, seen: Seen) -> protocol.ResponseDone | None:
        if seen.prefix is None:
            raise MessageRefusedError("No frame has been kept yet; send one before a query.", code="no_frames")
        query = self._query_of(asked.query)
        losses = 0
        while True:
            began_s = time.monotonic()
            try:
                answer = self._stream(asked, seen.prefix, query)
            except EngineLostError as error:
                self._on_loss()
                losses += 1
                if losses > _ASKED_AGAIN:
                    raise MessageRefusedError(
                        f"{error.message} It was asked {losses} times.", code="engine_lost"
                    ) from None
                if self._is_ending():
                    return None
                time.sleep(_PAUSE_S)
                self._begin(asked)  # what was told of the answer does not count
            except ReelabelError as error:
                raise MessageRefusedError(error.message, code=_code_of(error)) from None
            else:
                if answer is None:
                    return None
                return _done(asked, seen, answer, waited_ms=(began_s - seen.arrived_s) * 1e3, losses=losses)

    def _query_of(self, query: protocol.VideoQuery) -> LiveQuery:
        if query.choices:
            text = render_question(self._setup.template, prompt=query.text, choices=query.choices)
            return LiveQuery(text=text, choices=query.choices)
        sampling = query.sampling or self._config.answers
        return LiveQuery(
            text=query.text,
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=sampling.seed,
        )

    def _stream(self, asked: Asked, prefix: Prefix, query: LiveQuery) -> LiveAnswer | None:
        """Ask, and pass on the pieces of the answer; None if the session ends meanwhile."""
        for event in self._setup.model.ask(prefix, query):
            if self._is_ending():
                return None
            if not isinstance(event, Delta):
                return event
            self._outbox.put(protocol.TextDelta(query=asked.number, delta=event.text))
        raise InferenceError("The model has ended its answer early.")

    def _write(self, asked: Asked, seen: Seen, outcome: protocol.ResponseDone | MessageRefusedError) -> None:
        """Record a query before its client is told of its end.

        Raises:
            MessageRefusedError: It cannot be recorded.
        """
        if self._record is None:
            return
        for pause_s in (*_RECORD_AGAIN_S, None):
            try:
                self._record.answer(asked.query, seen, outcome)
            except TransientError as error:
                if pause_s is None or self._is_ending():
                    raise MessageRefusedError(
                        f"The query's end cannot be recorded: {error.message}", code="unavailable"
                    ) from None
                time.sleep(pause_s)
            else:
                return


def _code_of(error: ReelabelError) -> protocol.ErrorCode:
    if isinstance(error, PromptTooLongError):
        return "prompt_too_long"
    return "query_refused" if isinstance(error, PromptError) else "query_failed"


def _done(asked: Asked, seen: Seen, answer: LiveAnswer, *, waited_ms: float, losses: int) -> protocol.ResponseDone:
    assert seen.prefix is not None
    return protocol.ResponseDone(
        query=asked.number,
        query_id=asked.query.query_id,
        text=answer.text,
        finish_reason=answer.finish_reason,
        choice=answer.choice_index,
        probabilities=answer.probabilities or None,
        margin=answer.margin,
        first_token_ms=waited_ms + answer.first_token_ms,
        total_ms=waited_ms + answer.total_ms,
        prompt_tokens=answer.prompt_tokens,
        output_tokens=answer.output_tokens,
        cached_tokens=answer.cached_tokens,
        frames_used=seen.prefix.frames,
        sink_frames=seen.sink_frames,
        first_frame_s=seen.first_frame_s,
        last_frame_s=seen.last_frame_s,
        last_frame=seen.last_frame[0],
        last_frame_id=seen.last_frame[1],
        evicted=seen.evicted,
        engine_restarts=losses,
    )
