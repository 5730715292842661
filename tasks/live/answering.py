"""How the queries of a session are answered, recorded, and told."""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections import deque
from dataclasses import replace
from queue import SimpleQueue
from typing import TYPE_CHECKING, Literal, TypeAlias

from infra.errors import EngineLostError
from reelabel.errors import ReelabelError, TransientError
from reelabel_engine.errors import InferenceError, PromptError, PromptTooLongError
from tasks.live import messages, metrics
from tasks.live.arrivals import Asked
from tasks.live.messages import ProtocolError
from tasks.live.model import SPEECH_HZ, Delta, LiveQuery, Speech
from tasks.live.setup import speaks
from tasks.live.standing import Standing
from tasks.model.prompts.prompt import render_question, require_short

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.live.kept import Seen
    from tasks.live.model import LiveAnswer
    from tasks.live.outbox import Outbox
    from tasks.live.record.recording import Record
    from tasks.live.setup import LiveSetup
    from tasks.live.warming import EngineWatch

SpeechEvent: TypeAlias = Literal["response.audio", "response.audio.delta", "response.output_audio.delta"]

_LOG = logging.getLogger(__name__)
_MAX_WAITING = 64  # queries
_MAX_STANDING = 16
_MAX_IDS = 4096  # of queries that a client may send again
_ASKED_AGAIN = 3  # times, if the engine is lost
_PAUSE_S = 0.5
_RECORD_AGAIN_S = (0.5, 2.0, 5.0)
_CANCELLED = ProtocolError("The client cancelled the question.", code="cancelled")


class Answerer:
    """Answers the queries of a session one after the other, in a thread, so that frames go on arriving meanwhile.

    Attributes:
        asked: How many queries there were.
        answered: How many of these were answered.
        ended_s: When the last one ended, by the monotonic clock.
    """

    def __init__(
        self,
        session_id: str,
        setup: LiveSetup,
        config: messages.SessionConfig,
        outbox: Outbox,
        record: Record | None,
        *,
        watch: EngineWatch,
        on_done: Callable[[], None],
    ) -> None:
        """Start with no query.

        Args:
            session_id: The session.
            setup: What answers.
            config: What the client asked for.
            outbox: Where answers go.
            record: Where they are recorded.
            watch: Is told when the engine is lost, and back.
            on_done: Called after the last query, unless they are given up.
        """
        self.asked = self.answered = 0
        self.ended_s = 0.0
        self._session_id, self._setup, self._config, self._outbox = session_id, setup, config, outbox
        self._record, self._watch, self._on_done = record, watch, on_done
        self._queries: SimpleQueue[tuple[Asked, Seen] | None] = SimpleQueue()
        self._open: list[Asked] = []  # which wait, or are being answered
        self._running: Asked | None = None
        self._standing: dict[str, Standing] = {}
        self._ids: dict[str, None] = {}  # of queries that have arrived, in order
        by_protocol: SpeechEvent = "response.output_audio.delta" if config.is_newer else "response.audio.delta"
        self._speech_event: SpeechEvent = config.speech_event or by_protocol
        self._turns: deque[tuple[str, str]] = deque(maxlen=config.history)
        self._is_given_up = threading.Event()
        self._lock = threading.RLock()
        self._thread = threading.Thread(target=self._answer_all, name="live-answers", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many queries wait, or are being answered."""
        return len(self._open)

    # Called by whoever receives messages

    def admit(self, query: messages.VideoQuery, *, arrived_s: float) -> Asked | Standing | None:
        """Take a query that has arrived; None if it arrived before, and is sent again.

        Raises:
            ProtocolError: Too many wait already.
        """
        with self._lock:
            if query.again and query.query_id in self._ids:
                return None
            if query.interrupt:
                self._end_open([*self._open], "cancelled")
            admitted = self._stand(query) if query.is_standing else self._wait(query, arrived_s)
            if query.query_id is not None:
                self._ids[query.query_id] = None
                if len(self._ids) > _MAX_IDS:
                    del self._ids[next(iter(self._ids))]
        return admitted

    def _wait(self, query: messages.VideoQuery, arrived_s: float) -> Asked:
        if len(self._open) >= _MAX_WAITING:
            raise ProtocolError(
                f"{_MAX_WAITING} queries are already waiting; wait for their answers.", code="too_many_queries"
            )
        return self._opened(query, arrived_s)

    def _opened(self, query: messages.VideoQuery, arrived_s: float, standing: Standing | None = None) -> Asked:
        is_quiet = standing is not None and query.on_change
        limit_s = query.deadline_s or self._config.deadline_s
        asked = Asked(
            number=None if is_quiet else self._next_number(),
            query=query,
            arrived_s=arrived_s,
            deadline_s=None if limit_s is None else arrived_s + limit_s,
            standing=standing,
        )
        self._open.append(asked)
        return asked

    def _next_number(self) -> int:
        with self._lock:
            self.asked += 1
            return self.asked - 1

    def _stand(self, query: messages.VideoQuery) -> Standing:
        assert query.query_id is not None
        if query.query_id not in self._standing and len(self._standing) >= _MAX_STANDING:
            raise ProtocolError(
                f"There are {_MAX_STANDING} standing questions already; cancel one first.", code="too_many_queries"
            )
        standing = self._standing[query.query_id] = Standing(query)
        return standing

    def cancel(self, query_id: str | None) -> None:
        """End what is being answered; or what has an id: the queries that wait or are answered, a standing question."""
        with self._lock:
            ended = [asked for asked in self._open if query_id in (None, asked.query.query_id)]
            if query_id is None:
                ended = ended[:1]
            was_standing = self._standing.pop(query_id, None) if query_id is not None else None
            self._end_open(ended, "cancelled")
        if was_standing:
            self._notify("standing_ended", "The standing question has ended.", query_id)
        elif not ended:
            self._notify("nothing_cancelled", "No such question is waiting or being answered.", query_id)

    def check_deadlines(self, now_s: float) -> None:
        """End the queries whose time is over."""
        with self._lock:
            late = [asked for asked in self._open if asked.deadline_s is not None and now_s > asked.deadline_s]
            self._end_open(late, "deadline_exceeded")

    def _end_open(self, ended: list[Asked], why: messages.ErrorCode) -> None:
        for asked in ended:
            asked.ended_by = asked.ended_by or why
        if self._running in ended:
            self._setup.model.cancel(self._session_id)

    def _notify(self, code: messages.NoticeCode, message: str, query_id: str | None) -> None:
        self._outbox.put(messages.Notice(code=code, message=message, query_id=query_id))

    # Called by whoever takes frames

    @property
    def standing(self) -> list[Standing]:
        """The standing questions."""
        with self._lock:
            return [*self._standing.values()]

    def ask_again(self, standing: Standing, *, time_s: float, arrived_s: float) -> Asked:
        """Take a standing question as a query, at a time of the session's clock, and of the monotonic clock."""
        with self._lock:
            asked = self._opened(standing.query, arrived_s, standing)
            standing.begin(time_s)
        return asked

    def put(self, asked: Asked, seen: Seen) -> None:
        """Have a query answered after those before it."""
        self._queries.put((asked, seen))

    def fail(self, asked: Asked, refused: ProtocolError) -> None:
        """End a query with an error of this program."""
        self._fail(asked, refused)
        with self._lock:
            self._end(self._open.index(asked))

    def _fail(self, asked: Asked, refused: ProtocolError) -> None:
        if asked.number is None:
            asked.number = self._next_number()
        self._tell(asked, refused)

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

    # The thread that answers

    def _answer_all(self) -> None:
        while (query := self._queries.get()) is not None and not self._is_given_up.is_set():
            asked, seen = query
            with self._lock:
                self._running = asked
            try:
                self._answer(asked, seen)
            except Exception:  # noqa: BLE001 - one query must not end the others
                if not self._is_given_up.is_set():
                    _LOG.exception("A query of a live session failed")
                    text = "The query failed; the server's log says why."
                    self._fail(asked, ProtocolError(text, code="internal"))
            with self._lock:
                self._end(self._open.index(asked))
        if not self._is_given_up.is_set():
            self._on_done()

    def _end(self, position: int) -> None:
        """End an open query; the lock is held."""
        asked = self._open.pop(position)
        if self._running is asked:
            self._running = None
        if asked.standing:
            asked.standing.is_open = False
        self.ended_s = time.monotonic()

    def _answer(self, asked: Asked, seen: Seen) -> None:
        self._begin(asked)
        try:
            done = self._ask_model(asked, seen)
            is_quiet = asked.number is None and asked.ended_by == "cancelled"
            if done is None and (asked.ended_by is None or is_quiet):  # given up, or nothing to tell
                return
            if done is None:
                done = self._ended(asked, seen)
            elif asked.standing and not asked.standing.tells(done):
                self.answered += 1
                return
            if asked.number is None:
                asked.number = self._next_number()
                done = done.model_copy(update={"query": asked.number})
                self._begin(asked)
            self._write(asked, seen, _CANCELLED if done.finish_reason == "cancelled" else done)
        except ProtocolError as refused:
            self._refuse(asked, seen, refused)
            return
        if self._config.is_newer:
            consumed = {"query": done.query, "frames": done.frames_used, "last_frame": done.last_frame}
            self._outbox.put(messages.FramesConsumed.model_validate(consumed))
        self._outbox.put(done)
        self._outbox.put(messages.TextDone(query=done.query, text=done.text))
        if done.finish_reason == "cancelled":
            metrics.question_ends("cancelled")
            return
        metrics.question_ends("answered", done.first_token_ms)
        if not asked.query.choices and self._config.history:
            self._turns.append((asked.query.text, done.text))
        if asked.standing:
            asked.standing.told(done)
        self.answered += 1
        self._watch.back()

    def _begin(self, asked: Asked) -> None:
        if asked.number is not None:
            self._outbox.put(messages.ResponseStart(query=asked.number, query_id=asked.query.query_id))

    def _ended(self, asked: Asked, seen: Seen) -> messages.ResponseDone:
        """Return what a client is told of a query that it has cancelled.

        Raises:
            ProtocolError: Its time is over.
        """
        if asked.ended_by != "cancelled":
            limit_s = asked.query.deadline_s or self._config.deadline_s
            raise ProtocolError(f"The question was not answered within {limit_s:g} seconds.", code="deadline_exceeded")
        return _done(asked, seen)

    def _refuse(self, asked: Asked, seen: Seen, refused: ProtocolError) -> None:
        if asked.standing and not asked.standing.tells_fault(refused.code):
            return
        if asked.number is None:
            asked.number = self._next_number()
        told = refused
        if refused.code != "unavailable":
            try:
                self._write(asked, seen, refused)
            except ProtocolError as unrecorded:
                told = ProtocolError(f"{refused.message} {unrecorded.message}", code=refused.code)
        self._tell(asked, told)

    def _tell(self, asked: Asked, refused: ProtocolError) -> None:
        metrics.question_ends(refused.code)
        self._outbox.put(messages.ErrorEvent.of(refused, query=asked.number, query_id=asked.query.query_id))

    def _ask_model(self, asked: Asked, seen: Seen) -> messages.ResponseDone | None:
        """Return the answer; None if the query was cancelled, or given up."""
        if seen.prefix is None:
            raise ProtocolError(
                "There is no frame to see: none was kept yet, or audio has pushed out all; send one before a query.",
                code="no_frames",
            )
        losses = 0
        query = self._query_of(asked.query)
        while not asked.ended_by:
            began_s = time.monotonic()
            try:
                answer, speech_s = self._stream(asked, seen, query)
            except EngineLostError as error:
                losses += 1
                if not self._may_ask_again(error, losses):
                    return None
                self._begin(asked)  # what was told of the answer does not count
            except PromptTooLongError as error:
                if not query.turns:
                    raise _refusal_of(error) from None
                query = replace(query, turns=query.turns[(len(query.turns) + 1) // 2 :])  # the last ones may fit
            except ReelabelError as error:
                raise _refusal_of(error) from None
            else:
                if answer is None:
                    return None
                done = _done(asked, seen, answer, waited_ms=(began_s - asked.arrived_s) * 1e3, losses=losses)
                return done.model_copy(update={"speech_s": speech_s, "turns": len(query.turns)})
        return None

    def _may_ask_again(self, error: EngineLostError, losses: int) -> bool:
        """Wait for an engine that was lost; return whether to ask again.

        Raises:
            ProtocolError: It was lost too often.
        """
        self._watch.lost()
        if losses > _ASKED_AGAIN:
            raise ProtocolError(f"{error.message} It was asked {losses} times.", code="engine_lost")
        return not self._is_given_up.wait(_PAUSE_S)

    def _query_of(self, query: messages.VideoQuery) -> LiveQuery:
        if query.choices:
            text = render_question(self._setup.template, prompt=query.text, choices=query.choices)
            require_short(text, self._config.system_prompt)
            return LiveQuery(text=text, choices=query.choices)
        sampling = query.sampling or self._config.answers
        return LiveQuery(
            text=query.text,
            turns=tuple(self._turns),
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=sampling.seed,
            speaks=speaks(self._config, self._setup),
            voice=self._config.speaker,
        )

    def _stream(self, asked: Asked, seen: Seen, query: LiveQuery) -> tuple[LiveAnswer | None, float]:
        """Ask, and pass on the pieces of the answer; return it, None if it was ended, and its seconds in speech."""
        assert seen.prefix is not None
        asked.said.clear()
        speech_s = 0.0
        for event in self._setup.model.ask(seen.prefix, query):
            if self._is_given_up.is_set() or asked.ended_by:
                break
            match event:
                case Delta():
                    asked.first_ms = asked.first_ms or (time.monotonic() - asked.arrived_s) * 1e3
                    asked.said.append(event.text)
                    if asked.number is not None:
                        self._outbox.put(messages.TextDelta(query=asked.number, delta=event.text))
                case Speech():
                    speech_s += event.seconds
                    self._say(asked, event)
                case _:
                    self._said_all(asked, speech_s)
                    return event, speech_s
        else:
            if not self._is_given_up.is_set() and not asked.ended_by:
                raise InferenceError("The model has ended its answer early.")
        self._said_all(asked, speech_s)
        return None, speech_s

    def _say(self, asked: Asked, speech: Speech) -> None:
        assert asked.number is not None
        kind, is_binary = self._speech_event, self._speech_event == "response.audio"
        encoded = None if is_binary else base64.b64encode(speech.data).decode()
        self._outbox.put(
            messages.SpeechDelta(
                type=kind, query=asked.number, bytes=len(speech.data), delta=encoded, sample_rate=SPEECH_HZ
            ),
            speech.data if is_binary else b"",
        )

    def _said_all(self, asked: Asked, speech_s: float) -> None:
        if speech_s and asked.number is not None:
            is_newer = self._speech_event == "response.output_audio.delta"
            kind: Literal["response.output_audio.done", "response.audio.done"] = (
                "response.output_audio.done" if is_newer else "response.audio.done"
            )
            self._outbox.put(messages.SpeechDone(type=kind, query=asked.number))

    def _write(self, asked: Asked, seen: Seen, outcome: messages.ResponseDone | ProtocolError) -> None:
        """Record a query before its client is told of its end.

        Raises:
            ProtocolError: It cannot be recorded.
        """
        if self._record is None:
            return
        for pause_s in (*_RECORD_AGAIN_S, None):
            try:
                self._record.answer(asked, seen, outcome)
            except TransientError as error:
                if pause_s is None or self._is_given_up.wait(pause_s):
                    raise ProtocolError(
                        f"The query's end cannot be recorded: {error.message}", code="unavailable"
                    ) from None
            else:
                return


def _refusal_of(error: ReelabelError) -> ProtocolError:
    code: messages.ErrorCode = "query_refused" if isinstance(error, PromptError) else "query_failed"
    return ProtocolError(error.message, code="prompt_too_long" if isinstance(error, PromptTooLongError) else code)


def _done(
    asked: Asked, seen: Seen, answer: LiveAnswer | None = None, *, waited_ms: float = 0.0, losses: int = 0
) -> messages.ResponseDone:
    """Return what a client is told at the end of a query; without an answer, one that it has cancelled."""
    assert seen.prefix is not None
    return messages.ResponseDone(
        query=asked.number or 0,
        query_id=asked.query.query_id,
        text=answer.text if answer else "".join(asked.said),
        finish_reason=answer.finish_reason if answer else "cancelled",
        choice=answer.choice_index if answer else None,
        probabilities=(answer.probabilities or None) if answer else None,
        margin=answer.margin if answer else None,
        first_token_ms=waited_ms + answer.first_token_ms if answer else asked.first_ms,
        total_ms=waited_ms + answer.total_ms if answer else asked.waited_ms,
        prompt_tokens=answer.prompt_tokens if answer else 0,
        output_tokens=answer.output_tokens if answer else 0,
        cached_tokens=answer.cached_tokens if answer else 0,
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
