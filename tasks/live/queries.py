"""The queries of a session: which wait, how they are answered, and how answers are recorded and sent."""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections import deque
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from infra.errors import EngineLostError
from infra.text_bounds import MAX_TEXT
from reelabel.errors import ReelabelError, TransientError
from reelabel_engine.errors import InferenceError, PromptError, PromptTooLongError
from reelabel_engine.protocol import LiveDone, LiveQuery
from tasks.live import events, messages, metrics
from tasks.live.messages import ProtocolError
from tasks.live.model import SPEECH_HZ, Speech
from tasks.live.pending import PendingQuery, Standing
from tasks.live.threads import in_thread, iterate_in_thread
from tasks.model.prompts.prompt import render_question, require_short

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tasks.live.event_log import EngineStatus, EventLog
    from tasks.live.frame_window import Visible
    from tasks.live.record.recorder import SessionRecord
    from tasks.live.setup import LiveSetup

SpeechEvent: TypeAlias = Literal["response.audio", "response.audio.delta", "response.output_audio.delta"]

_LOG = logging.getLogger(__name__)
_MAX_STANDING = 16
_MAX_IDS = 4096  # of queries that a client may send again
_ATTEMPTS = 4  # to answer a query, if the engine is lost
_PAUSE_S = 0.5
_RECORD_AGAIN_S = (0.5, 2.0, 5.0)
_TOKENS = {"prompt_tokens", "cached_tokens", "output_tokens"}
# Columns of a query's row that are fields of the event.
_COLUMNS = {"probabilities", "margin", "first_token_ms", "total_ms", *_TOKENS}
_CANCELLED = ProtocolError("The client cancelled the question.", code="cancelled")


class Queries:
    """The queries of one session, answered one after the other while frames keep arriving."""

    def __init__(
        self,
        session_id: str,
        config: messages.SessionConfig,
        setup: LiveSetup,
        *,
        events: EventLog,
        engine: EngineStatus,
        record: SessionRecord | None,
    ) -> None:
        self.count = self.answered = 0
        self.ended_s = 0.0  # when the last one ended, on the monotonic clock
        self._session_id, self._setup, self._config = session_id, setup, config
        self._events, self._engine, self._record = events, engine, record
        self._waiting: asyncio.Queue[tuple[PendingQuery, Visible] | None] = asyncio.Queue()
        self._pending: list[PendingQuery] = []
        self._running: PendingQuery | None = None
        self._limit: asyncio.Timeout | None = None  # on waiting for the model
        self._is_free = asyncio.Event()  # unset while a thread asks the model, even about an abandoned question
        self._is_free.set()
        self._standing: dict[str, Standing] = {}
        self._asked: dict[str, int] = {}  # by the ids of queries that have arrived, in order: what they asked
        self._is_newer = config.is_newer
        by_protocol: SpeechEvent = "response.output_audio.delta" if self._is_newer else "response.audio.delta"
        self._speech_event: SpeechEvent = config.speech_event or by_protocol
        self._turns: deque[tuple[str, str]] = deque(maxlen=config.history)

    @property
    def waiting(self) -> int:
        return len(self._pending)

    @property
    def standing(self) -> list[Standing]:
        return [*self._standing.values()]

    # Before they are answered

    def is_repeated(self, query: messages.VideoQuery) -> bool:
        """Whether a query has arrived before, and was sent again after its connection was lost.

        Another question may take over the id of a standing one, also while its client has no connection.
        """
        return query.again and self._asked.get(query.query_id or "") == _key_of(query)

    def admit(self, query: messages.VideoQuery, *, arrived_s: float) -> PendingQuery | Standing:
        """Accept a query that has arrived.

        Raises:
            ProtocolError: Too many queries wait, there are too many standing questions, or it is too long.
        """
        if query.interrupt:
            self._cancel(self._pending)
        # Cancelled ones wait only for their turn to end, but there is a limit to them, too.
        waiting = sum(not each.is_cancelled for each in self._pending)
        if waiting >= messages.MAX_WAITING or len(self._pending) >= 2 * messages.MAX_WAITING:
            raise ProtocolError(
                f"{messages.MAX_WAITING} queries are already waiting; wait for their answers.", code="too_many_queries"
            )
        try:  # those that wait would fill the memory with their choices
            require_short(self._text_of(query), self._config.system_prompt)
        except PromptTooLongError as error:
            raise ProtocolError(error.message, code="prompt_too_long") from None
        admitted = self._add_standing(query, arrived_s) if query.is_standing else self._add(query, arrived_s)
        if query.query_id is not None:
            self._asked[query.query_id] = _key_of(query)
            if len(self._asked) > _MAX_IDS:
                del self._asked[next(iter(self._asked))]
        return admitted

    def _add(self, query: messages.VideoQuery, arrived_s: float, standing: Standing | None = None) -> PendingQuery:
        limit_s = query.deadline_s or self._config.deadline_s
        pending = PendingQuery(
            number=None if standing and query.on_change else self._next_number(),
            query=query,
            arrived_s=arrived_s,
            deadline_s=None if limit_s is None else arrived_s + limit_s,
            standing=standing,
        )
        self._pending.append(pending)
        return pending

    def _next_number(self) -> int:
        self.count += 1
        return self.count - 1

    def _add_standing(self, query: messages.VideoQuery, arrived_s: float) -> Standing:
        assert query.query_id is not None
        replaced = self._standing.get(query.query_id)
        if replaced is None and len(self._standing) >= _MAX_STANDING:
            raise ProtocolError(
                f"There are {_MAX_STANDING} standing questions already; cancel one first.", code="too_many_queries"
            )
        self._cancel(each for each in self._pending if replaced and each.standing is replaced)
        standing = self._standing[query.query_id] = Standing(query, arrived_s=arrived_s)
        return standing

    def ask_standing(self, standing: Standing, *, time_s: float, arrived_s: float) -> PendingQuery:
        """Make a query of a standing question, at a time on the clock of the frames and on the monotonic clock."""
        pending = self._add(standing.query, arrived_s, standing)
        standing.begin(time_s)
        return pending

    def put(self, pending: PendingQuery, visible: Visible) -> None:
        """Queue a query, with what it sees, until it is its turn."""
        self._waiting.put_nowait((pending, visible))

    def finish(self) -> None:
        """Have `answer_all` return once all queries are answered."""
        self._waiting.put_nowait(None)

    def cancel(self, query_id: str | None) -> None:
        """Cancel the queries and the standing question with an id; without one, the query that is being answered."""
        standing = None
        if query_id is None:
            # Only those that the client knows of, or it would wait for an answer that nobody sends.
            known = [each for each in self._pending if each.number is not None]
            cancelled = [self._running] if self._running in known else known[:1]
        else:
            cancelled = [each for each in self._pending if each.query.query_id == query_id]
            standing = self._standing.pop(query_id, None)
        self._cancel(cancelled)
        if standing:
            self._notify("standing_ended", "The standing question has ended.", query_id)
        elif not cancelled:
            self._notify("nothing_cancelled", "No such question is waiting or being answered.", query_id)

    def _cancel(self, queries: Iterable[PendingQuery]) -> None:
        for each in queries:
            each.is_cancelled = True
            if each is self._running and self._limit and not self._limit.expired():
                self._limit.reschedule(0)

    def _notify(self, code: events.NoticeCode, message: str, query_id: str | None) -> None:
        self._events.send(events.Notice(code=code, message=message, query_id=query_id))

    # Their answers

    async def answer_all(self) -> None:
        while (query := await self._waiting.get()) is not None:
            pending, visible = query
            self._running = pending
            try:
                await self._answer(pending, visible)
            except Exception:  # noqa: BLE001 - one query must not end the others
                _LOG.exception("A query of a live session failed")
                text = "The query failed; the server's log says why."
                self._send_error(pending, ProtocolError(text, code="internal"))
            self._release(pending)

    def fail(self, pending: PendingQuery, error: ProtocolError) -> None:
        """End a query whose turn never comes."""
        self._send_error(pending, error)
        self._release(pending)

    def _release(self, pending: PendingQuery) -> None:
        self._pending.remove(pending)
        if self._running is pending:
            self._running = None
        if pending.standing:
            pending.standing.is_pending = False
        self.ended_s = time.monotonic()

    async def _answer(self, pending: PendingQuery, visible: Visible) -> None:
        self._send_start(pending)
        try:
            done = await self._ask_model(pending, visible)
            is_cancelled = done.finish_reason == "cancelled"
            if is_cancelled and pending.number is None:  # its client has not heard of it
                return
            if not is_cancelled and pending.standing and not pending.standing.is_news(done):
                self.answered += 1
                return
            if pending.number is None:
                pending.number = self._next_number()
                done = done.model_copy(update={"query": pending.number})
                self._send_start(pending)
            await self._write(pending, visible, _CANCELLED if is_cancelled else done)
        except ProtocolError as error:
            await self._record_error(pending, visible, error)
            return
        if self._is_newer:
            consumed = {"query": done.query, "frames": done.frames_used, "last_frame": done.last_frame}
            self._events.send(events.FramesConsumed.model_validate(consumed))
        self._events.send(done)
        self._events.send(events.TextDone(query=done.query, text=done.text))
        if is_cancelled:
            metrics.count_question("cancelled")
            return
        metrics.count_question("answered", done.first_token_ms)
        if not pending.query.choices:
            self._turns.append((pending.query.text, done.text))
        if pending.standing:
            pending.standing.note_sent(done)
        self.answered += 1
        self._engine.back()

    def _send_start(self, pending: PendingQuery) -> None:
        if pending.number is not None:
            self._events.send(events.ResponseStart(query=pending.number, query_id=pending.query.query_id))

    async def _record_error(self, pending: PendingQuery, visible: Visible, error: ProtocolError) -> None:
        if pending.standing and not pending.standing.is_new_error(error.code):
            return
        if pending.number is None:
            pending.number = self._next_number()
        if error.code != "unavailable":
            try:
                await self._write(pending, visible, error)
            except ProtocolError as unrecorded:
                error = ProtocolError(f"{error.message} {unrecorded.message}", code=error.code)
        self._send_error(pending, error)

    def _send_error(self, pending: PendingQuery, error: ProtocolError) -> None:
        if pending.number is None:
            pending.number = self._next_number()
        metrics.count_question(error.code)
        self._events.send(events.ErrorEvent.of(error, query=pending.number, query_id=pending.query.query_id))

    async def _ask_model(self, pending: PendingQuery, visible: Visible) -> events.ResponseDone:
        """Return the answer, or what there was of it when the query was cancelled.

        Raises:
            ProtocolError: There is none; also if the deadline has passed.
        """
        if visible.prefix is None:
            raise ProtocolError("No frame is in the window yet. Send a frame before the query.", code="no_frames")
        # The model may take minutes to respond, such as an engine that loads again: nothing here waits for it.
        try:
            async with asyncio.timeout_at(pending.deadline_s) as limit:
                self._limit = limit
                await asyncio.sleep(0)  # a query whose deadline has passed is not asked at all
                if not pending.is_cancelled:
                    return await self._ask_until_answered(pending, visible)
        except TimeoutError:
            if not limit.expired():
                raise
            self._setup.model.cancel(self._session_id)
        finally:
            self._limit = None
        self._end_speech(pending)
        if not pending.is_cancelled:
            limit_s = pending.query.deadline_s or self._config.deadline_s
            raise ProtocolError(f"The question was not answered within {limit_s:g} seconds.", code="deadline_exceeded")
        return _done(pending, visible)

    async def _ask_until_answered(self, pending: PendingQuery, visible: Visible) -> events.ResponseDone:
        losses, query = 0, self._query_of(pending.query)
        while True:
            try:
                answer = await self._stream(pending, visible, query)
            except EngineLostError as error:
                losses += 1
                self._engine.lost()
                if losses == _ATTEMPTS:
                    text = f"{error.message} It was asked {losses} times."
                    raise ProtocolError(text, code="engine_lost") from None
                await asyncio.sleep(_PAUSE_S)
                self._send_start(pending)  # the pieces so far do not count
            except PromptTooLongError as error:
                if not query.turns:
                    raise ProtocolError(error.message, code="prompt_too_long") from None
                query = replace(query, turns=query.turns[(len(query.turns) + 1) // 2 :])  # the last ones may fit
            except ReelabelError as error:
                code: messages.ErrorCode = "query_refused" if isinstance(error, PromptError) else "query_failed"
                raise ProtocolError(error.message, code=code) from None
            else:
                more = {"speech_s": pending.speech_s, "turns": len(query.turns), "engine_restarts": losses}
                return _done(pending, visible, answer).model_copy(update=more)

    def _query_of(self, query: messages.VideoQuery) -> LiveQuery:
        if query.choices:
            return LiveQuery(text=self._text_of(query), choices=query.choices)
        sampling = query.sampling or self._config.answers
        return LiveQuery(
            text=query.text,
            turns=self._last_turns(MAX_TEXT - len(query.text) - len(self._config.system_prompt or "")),
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=sampling.seed,
            produces_speech=self._setup.produces_speech(self._config),
            voice=self._config.speaker,
        )

    def _text_of(self, query: messages.VideoQuery) -> str:
        return render_question(self._setup.template, prompt=query.text, choices=query.choices or ())

    def _last_turns(self, room: int) -> tuple[tuple[str, str], ...]:
        """Return the last turns that together have at most this many characters."""
        turns: deque[tuple[str, str]] = deque()
        for question, answer in reversed(self._turns):
            room -= len(question) + len(answer)
            if room < 0:
                break
            turns.appendleft((question, answer))
        return tuple(turns)

    async def _stream(self, pending: PendingQuery, visible: Visible, query: LiveQuery) -> LiveDone:
        """Ask the model, and send the pieces of the answer; return its final message."""
        assert visible.prefix is not None
        pending.discard_answer()
        await self._is_free.wait()
        answer = self._setup.model.ask(visible.prefix, query)
        async with aclosing(iterate_in_thread(answer, self._is_free)) as pieces:
            async for piece in pieces:
                if isinstance(piece, LiveDone):
                    self._end_speech(pending)
                    return piece
                pending.first_ms = pending.first_ms or pending.waited_ms
                if isinstance(piece, Speech):
                    pending.first_speech_ms = pending.first_speech_ms or pending.waited_ms
                    pending.speech_s += piece.seconds
                    self._send_speech(pending, piece)
                elif piece.text:
                    pending.text.append(piece.text)
                    if pending.number is not None:
                        self._events.send(events.TextDelta(query=pending.number, delta=piece.text))
        raise InferenceError("The model has ended its answer early.")

    def _send_speech(self, pending: PendingQuery, speech: Speech) -> None:
        assert pending.number is not None
        kind, is_binary = self._speech_event, self._speech_event == "response.audio"
        encoded = None if is_binary else base64.b64encode(speech.data).decode()
        self._events.send(
            events.SpeechDelta(
                type=kind, query=pending.number, bytes=len(speech.data), delta=encoded, sample_rate=SPEECH_HZ
            ),
            speech.data if is_binary else b"",
        )

    def _end_speech(self, pending: PendingQuery) -> None:
        if pending.speech_s and pending.number is not None:
            is_newer = self._speech_event == "response.output_audio.delta"
            kind: Literal["response.output_audio.done", "response.audio.done"] = (
                "response.output_audio.done" if is_newer else "response.audio.done"
            )
            self._events.send(events.SpeechDone(type=kind, query=pending.number))

    # Their rows

    async def _write(
        self, pending: PendingQuery, visible: Visible, outcome: events.ResponseDone | ProtocolError
    ) -> None:
        """Write a query's row.

        Raises:
            ProtocolError: Postgres is unavailable, also after several attempts.
        """
        if self._record is None:
            return
        for pause_s in (*_RECORD_AGAIN_S, None):
            try:
                await in_thread(self._record.answer, self._row(pending, visible, outcome))
            except TransientError as error:
                if pause_s is None:
                    raise ProtocolError(
                        f"The query's end cannot be recorded: {error.message}", code="unavailable"
                    ) from None
                await asyncio.sleep(pause_s)
            else:
                return

    def _row(
        self, pending: PendingQuery, visible: Visible, outcome: events.ResponseDone | ProtocolError
    ) -> dict[str, Any]:
        row = {
            "query": pending.number,
            "question": pending.query.text,
            "choices": pending.query.choices,
            "asked_s": visible.asked_s,
            "frames": visible.frames,
            "last_frame_s": visible.last_frame_s if visible.prefix else None,
            "audio_s": visible.prefix.audio_s if visible.prefix else 0.0,
            "model": self._setup.info.model,
        }
        if isinstance(outcome, ProtocolError):
            ended = {"code": outcome.code, "message": outcome.message, "total_ms": pending.waited_ms}
            return row | dict.fromkeys(_TOKENS, 0) | ended
        return row | outcome.model_dump(include=_COLUMNS) | {"answer": outcome.text, "choice_index": outcome.choice}


def _key_of(query: messages.VideoQuery) -> int:
    return hash((query.text, query.choices, query.every_s, query.on_change, query.change_margin))


def _done(pending: PendingQuery, visible: Visible, answer: LiveDone | None = None) -> events.ResponseDone:
    assert visible.prefix is not None
    total_ms, choices = pending.waited_ms, pending.query.choices
    counted = answer or LiveDone(prompt_tokens=0, cached_tokens=0)
    probabilities = counted.probabilities
    choice = max(range(len(probabilities)), key=probabilities.__getitem__, default=None)
    first, second, *_ = (*sorted(probabilities, reverse=True), 0.0, 0.0)
    return events.ResponseDone(
        query=pending.number or 0,
        query_id=pending.query.query_id,
        text="".join(pending.text) if choices is None or choice is None else choices[choice],
        finish_reason=answer.finish_reason if answer else "cancelled",
        choice=choice,
        probabilities=probabilities or None,
        margin=first - second if probabilities else None,
        first_token_ms=pending.first_ms or (total_ms if answer else None),
        first_speech_ms=pending.first_speech_ms,
        total_ms=total_ms,
        prompt_tokens=counted.prompt_tokens,
        output_tokens=counted.output_tokens,
        cached_tokens=counted.cached_tokens,
        frames_used=visible.prefix.frames,
        sink_frames=visible.sink_frames,
        first_frame_s=visible.first_frame_s,
        last_frame_s=visible.last_frame_s,
        last_frame=visible.last_frame[0],
        last_frame_id=visible.last_frame[1],
        evicted=visible.evicted,
        audio_s=visible.prefix.audio_s,
        last_audio_s=visible.last_audio_s,
    )
