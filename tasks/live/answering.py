"""How the queries of a session are answered, recorded, and told."""

from __future__ import annotations

import logging
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING

from infra.errors import EngineLostError
from reelabel.errors import ReelabelError, TransientError
from reelabel_engine.errors import InferenceError, PromptError, PromptTooLongError
from tasks.live import protocol
from tasks.live.arrivals import Asked
from tasks.live.model import SPEECH_HZ, Delta, LiveQuery, Speech
from tasks.live.protocol import MessageRefusedError
from tasks.live.setup import speaks
from tasks.model.prompts.prompt import render_question, require_short

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.live.kept import Seen
    from tasks.live.model import LiveAnswer, Prefix
    from tasks.live.outbox import Outbox
    from tasks.live.record.recording import Record
    from tasks.live.setup import LiveSetup
    from tasks.live.warming import EngineWatch

_LOG = logging.getLogger(__name__)
_MAX_WAITING = 64  # queries
_ASKED_AGAIN = 3  # times, if the engine is lost
_PAUSE_S = 0.5
_RECORD_AGAIN_S = (0.5, 2.0, 5.0)


class Answerer:
    """Answers the queries of one session one after the other, in a thread, so that frames go on arriving meanwhile.

    Attributes:
        asked: How many queries there were.
        answered: How many of these were answered.
        waiting: How many wait, or are being answered.
        ended_s: When the last one ended, by the monotonic clock.
    """

    def __init__(
        self,
        setup: LiveSetup,
        config: protocol.SessionConfig,
        outbox: Outbox,
        record: Record | None,
        *,
        watch: EngineWatch,
        on_done: Callable[[], None],
    ) -> None:
        """Start with no query.

        Args:
            setup: What answers.
            config: What the client asked for.
            outbox: Where answers go.
            record: Where they are recorded.
            watch: Is told when the engine is lost, and back.
            on_done: Called after the last query, unless they are given up.
        """
        self.asked = self.answered = self.waiting = 0
        self.ended_s = 0.0
        self._setup, self._config, self._outbox, self._record = setup, config, outbox, record
        self._watch, self._on_done = watch, on_done
        self._queries: SimpleQueue[tuple[Asked, Seen] | None] = SimpleQueue()
        self._is_given_up = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._answer_all, name="live-answers", daemon=True)
        self._thread.start()

    def admit(self, query: protocol.VideoQuery, *, arrived_s: float) -> Asked:
        """Number a query that has arrived, which waits from now on.

        Raises:
            MessageRefusedError: Too many wait already.
        """
        with self._lock:
            if self.waiting >= _MAX_WAITING:
                raise MessageRefusedError(
                    f"{_MAX_WAITING} queries are already waiting; wait for their answers.", code="too_many_queries"
                )
            asked = Asked(number=self.asked, query=query, arrived_s=arrived_s)
            self.asked += 1
            self.waiting += 1
        return asked

    def put(self, asked: Asked, seen: Seen) -> None:
        """Have a query answered after those before it."""
        self._queries.put((asked, seen))

    def fail(self, asked: Asked, refused: MessageRefusedError) -> None:
        """End a query with an error of this program."""
        self._tell(asked, refused)
        self._end()

    def finish(self) -> None:
        """Note that no query follows."""
        self._queries.put(None)

    def give_up(self) -> None:
        """Answer no more; what is being answered ends soon."""
        self._is_given_up.set()
        self.finish()

    def join(self, timeout_s: float) -> None:
        """Wait until the last query has ended."""
        self._thread.join(timeout_s)

    def _answer_all(self) -> None:
        while (query := self._queries.get()) is not None and not self._is_given_up.is_set():
            asked, seen = query
            try:
                self._answer(asked, seen)
            except Exception:  # noqa: BLE001 - one query must not end the others
                if not self._is_given_up.is_set():
                    _LOG.exception("A query of a live session failed")
                    text = "The query failed; the server's log says why."
                    self._tell(asked, MessageRefusedError(text, code="internal"))
            self._end()
        if not self._is_given_up.is_set():
            self._on_done()

    def _end(self) -> None:
        with self._lock:
            self.waiting -= 1
            self.ended_s = time.monotonic()

    def _answer(self, asked: Asked, seen: Seen) -> None:
        self._begin(asked)
        try:
            done = self._ask_model(asked, seen)
            if done is not None:
                self._write(asked, seen, done)
        except MessageRefusedError as refused:
            self._refuse(asked, seen, refused)
            return
        if done is None:  # given up
            return
        self._outbox.put(done)
        self._outbox.put(protocol.TextDone(query=asked.number, text=done.text))
        self.answered += 1
        self._watch.back()

    def _begin(self, asked: Asked) -> None:
        self._outbox.put(protocol.ResponseStart(query=asked.number, query_id=asked.query.query_id))

    def _refuse(self, asked: Asked, seen: Seen, refused: MessageRefusedError) -> None:
        told = refused
        if refused.code != "unavailable":
            try:
                self._write(asked, seen, refused)
            except MessageRefusedError as unrecorded:
                told = MessageRefusedError(f"{refused.message} {unrecorded.message}", code=refused.code)
        self._tell(asked, told)

    def _tell(self, asked: Asked, refused: MessageRefusedError) -> None:
        self._outbox.put(protocol.ErrorEvent.of(refused, query=asked.number, query_id=asked.query.query_id))

    def _ask_model(self, asked: Asked, seen: Seen) -> protocol.ResponseDone | None:
        if seen.prefix is None:
            raise MessageRefusedError(
                "There is no frame to see: none was kept yet, or audio has pushed out all; send one before a query.",
                code="no_frames",
            )
        losses = 0
        while True:
            began_s = time.monotonic()
            try:
                answer, speech_s = self._stream(asked, seen.prefix, self._query_of(asked.query))
            except EngineLostError as error:
                self._watch.lost()
                losses += 1
                if losses > _ASKED_AGAIN:
                    raise MessageRefusedError(
                        f"{error.message} It was asked {losses} times.", code="engine_lost"
                    ) from None
                if self._is_given_up.wait(_PAUSE_S):
                    return None
                self._begin(asked)  # what was told of the answer does not count
            except ReelabelError as error:
                raise MessageRefusedError(error.message, code=_code_of(error)) from None
            else:
                if answer is None:
                    return None
                done = _done(asked, seen, answer, waited_ms=(began_s - seen.arrived_s) * 1e3, losses=losses)
                return done.model_copy(update={"speech_s": speech_s})

    def _query_of(self, query: protocol.VideoQuery) -> LiveQuery:
        if query.choices:
            text = render_question(self._setup.template, prompt=query.text, choices=query.choices)
            require_short(text, self._config.system_prompt)
            return LiveQuery(text=text, choices=query.choices)
        sampling = query.sampling or self._config.answers
        return LiveQuery(
            text=query.text,
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=sampling.seed,
            speaks=speaks(self._config, self._setup),
            voice=self._config.speaker,
        )

    def _stream(self, asked: Asked, prefix: Prefix, query: LiveQuery) -> tuple[LiveAnswer | None, float]:
        """Ask, and pass on the pieces of the answer; return it, None if given up, and its seconds in speech."""
        speech_s = 0.0
        for event in self._setup.model.ask(prefix, query):
            if self._is_given_up.is_set():
                return None, speech_s
            match event:
                case Delta():
                    self._outbox.put(protocol.TextDelta(query=asked.number, delta=event.text))
                case Speech():
                    speech_s += event.seconds
                    size = len(event.data)
                    announced = protocol.SpeechDelta(query=asked.number, bytes=size, sample_rate=SPEECH_HZ)
                    self._outbox.put(announced, event.data)
                case _:
                    if speech_s:
                        self._outbox.put(protocol.SpeechDone(query=asked.number))
                    return event, speech_s
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
                if pause_s is None or self._is_given_up.wait(pause_s):
                    raise MessageRefusedError(
                        f"The query's end cannot be recorded: {error.message}", code="unavailable"
                    ) from None
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
        audio_s=seen.prefix.audio_s,
        last_audio_s=seen.last_audio_s,
        engine_restarts=losses,
    )
