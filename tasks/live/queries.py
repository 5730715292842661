"""The queries of a session: what waits, what is answered, how answers are recorded and sent."""

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
from reelabel.errors import ReelabelError, TransientError
from reelabel_engine.errors import InferenceError, PromptError, PromptTooLongError
from reelabel_engine.protocol import LiveDone, LiveQuery
from tasks.live import events, messages, metrics
from tasks.live.inbox import PendingQuery
from tasks.live.messages import ProtocolError
from tasks.live.model import SPEECH_HZ, Speech
from tasks.live.setup import LiveSetup, produces_speech
from tasks.live.standing import Standing
from tasks.live.threads import in_thread, iterate_in_thread
from tasks.model.prompts.prompt import render_question, require_short

if TYPE_CHECKING:
    from tasks.live.event_log import EngineStatus, EventLog
    from tasks.live.frame_window import Visible
    from tasks.live.record.recorder import SessionRecord

SpeechEvent: TypeAlias = Literal["response.audio", "response.audio.delta", "response.output_audio.delta"]

_LOG = logging.getLogger(__name__)
_MAX_STANDING = 16
_MAX_IDS = 4096  # of queries that a client may send again
_ASKED_AGAIN = 3  # times, if the engine is lost
_PAUSE_S = 0.5
_RECORD_AGAIN_S = (0.5, 2.0, 5.0)
_TOKENS = {"prompt_tokens", "cached_tokens", "output_tokens"}
# Of a query's row, as in the event.
_COLUMNS = {"probabilities", "margin", "first_token_ms", "total_ms", *_TOKENS}
_CANCELLED = ProtocolError("The client cancelled the question.", code="cancelled")


class Queries:
    """The queries of one session, answered one after the other while frames go on arriving."""

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
        self.asked = self.answered = 0
        self.ended_s = 0.0
        self._session_id, self._setup, self._config = session_id, setup, config
        self._events, self._engine, self._record = events, engine, record
        self._waiting: asyncio.Queue[tuple[PendingQuery, Visible] | None] = asyncio.Queue()
        self._open: list[PendingQuery] = []  # which wait, or are being answered
        self._running: PendingQuery | None = None
        self._standing: dict[str, Standing] = {}
        self._ids: dict[str, None] = {}  # of queries that have arrived, in order
        by_protocol: SpeechEvent = "response.output_audio.delta" if config.is_newer else "response.audio.delta"
        self._speech_event: SpeechEvent = config.speech_event or by_protocol
        self._turns: deque[tuple[str, str]] = deque(maxlen=config.history)

    @property
    def waiting(self) -> int:
        return len(self._open)

    @property
    def standing(self) -> list[Standing]:
        return [*self._standing.values()]

    def admit(self, query: messages.VideoQuery, *, arrived_s: float) -> PendingQuery | Standing | None:
        """Take a query that has arrived; None if it arrived before, and is sent again."""
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

    def _wait(self, query: messages.VideoQuery, arrived_s: float) -> PendingQuery:
        if len(self._open) >= messages.MAX_WAITING:
            raise ProtocolError(
                f"{messages.MAX_WAITING} queries are already waiting; wait for their answers.", code="too_many_queries"
            )
        return self._opened(query, arrived_s)

    def _opened(self, query: messages.VideoQuery, arrived_s: float, standing: Standing | None = None) -> PendingQuery:
        is_quiet = standing is not None and query.on_change
        limit_s = query.deadline_s or self._config.deadline_s
        asked = PendingQuery(
            number=None if is_quiet else self._next_number(),
            query=query,
            arrived_s=arrived_s,
            deadline_s=None if limit_s is None else arrived_s + limit_s,
            standing=standing,
        )
        self._open.append(asked)
        return asked

    def _next_number(self) -> int:
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
        late = [asked for asked in self._open if asked.deadline_s is not None and now_s > asked.deadline_s]
        self._end_open(late, "deadline_exceeded")

    def _end_open(self, ended: list[PendingQuery], why: messages.ErrorCode) -> None:
        for asked in ended:
            asked.ended_by = asked.ended_by or why
        if self._running in ended:
            self._setup.model.cancel(self._session_id)

    def _notify(self, code: events.NoticeCode, message: str, query_id: str | None) -> None:
        self._events.send(events.Notice(code=code, message=message, query_id=query_id))

    def ask_again(self, standing: Standing, *, time_s: float, arrived_s: float) -> PendingQuery:
        """Take a standing question as a query, at a time of the session's clock, and of the monotonic clock."""
        asked = self._opened(standing.query, arrived_s, standing)
        standing.begin(time_s)
        return asked

    def put(self, asked: PendingQuery, visible: Visible) -> None:
        self._waiting.put_nowait((asked, visible))

    def fail(self, asked: PendingQuery, refused: ProtocolError) -> None:
        self._fail(asked, refused)
        self.release(asked)

    def _fail(self, asked: PendingQuery, refused: ProtocolError) -> None:
        if asked.number is None:
            asked.number = self._next_number()
        self._send_error(asked, refused)

    def finish(self) -> None:
        self._waiting.put_nowait(None)

    async def answer_all(self) -> None:
        while (query := await self._waiting.get()) is not None:
            asked, visible = query
            self._running = asked
            try:
                await self._answer(asked, visible)
            except Exception:  # noqa: BLE001 - one query must not end the others
                _LOG.exception("A query of a live session failed")
                text = "The query failed; the server's log says why."
                self._fail(asked, ProtocolError(text, code="internal"))
            self.release(asked)

    def release(self, asked: PendingQuery) -> None:
        self._open.remove(asked)
        if self._running is asked:
            self._running = None
        if asked.standing:
            asked.standing.is_open = False
        self.ended_s = time.monotonic()

    async def _answer(self, asked: PendingQuery, visible: Visible) -> None:
        self._begin(asked)
        try:
            done = await self._ask_model(asked, visible)
            if done is None:
                if asked.number is None and asked.ended_by == "cancelled":  # its client has not heard of it
                    return
                done = self._ended(asked, visible)
            elif asked.standing and not asked.standing.is_news(done):
                self.answered += 1
                return
            if asked.number is None:
                asked.number = self._next_number()
                done = done.model_copy(update={"query": asked.number})
                self._begin(asked)
            await self._write(asked, visible, _CANCELLED if done.finish_reason == "cancelled" else done)
        except ProtocolError as refused:
            await self._refuse(asked, visible, refused)
            return
        if self._config.is_newer:
            consumed = {"query": done.query, "frames": done.frames_used, "last_frame": done.last_frame}
            self._events.send(events.FramesConsumed.model_validate(consumed))
        self._events.send(done)
        self._events.send(events.TextDone(query=done.query, text=done.text))
        if done.finish_reason == "cancelled":
            metrics.question_ends("cancelled")
            return
        metrics.question_ends("answered", done.first_token_ms)
        if not asked.query.choices and self._config.history:
            self._turns.append((asked.query.text, done.text))
        if asked.standing:
            asked.standing.note_sent(done)
        self.answered += 1
        self._engine.back()

    def _begin(self, asked: PendingQuery) -> None:
        if asked.number is not None:
            self._events.send(events.ResponseStart(query=asked.number, query_id=asked.query.query_id))

    def _ended(self, asked: PendingQuery, visible: Visible) -> events.ResponseDone:
        if asked.ended_by != "cancelled":
            limit_s = asked.query.deadline_s or self._config.deadline_s
            raise ProtocolError(f"The question was not answered within {limit_s:g} seconds.", code="deadline_exceeded")
        return _done(asked, visible)

    async def _refuse(self, asked: PendingQuery, visible: Visible, refused: ProtocolError) -> None:
        if asked.standing and not asked.standing.is_new_fault(refused.code):
            return
        if asked.number is None:
            asked.number = self._next_number()
        sent = refused
        if refused.code != "unavailable":
            try:
                await self._write(asked, visible, refused)
            except ProtocolError as unrecorded:
                sent = ProtocolError(f"{refused.message} {unrecorded.message}", code=refused.code)
        self._send_error(asked, sent)

    def _send_error(self, asked: PendingQuery, refused: ProtocolError) -> None:
        metrics.question_ends(refused.code)
        self._events.send(events.ErrorEvent.of(refused, query=asked.number, query_id=asked.query.query_id))

    async def _ask_model(self, asked: PendingQuery, visible: Visible) -> events.ResponseDone | None:
        if visible.prefix is None:
            raise ProtocolError(
                "No frame is in the window yet. Send a frame before the query.",
                code="no_frames",
            )
        losses = 0
        query = self._query_of(asked.query)
        while not asked.ended_by:
            try:
                answer, speech_s = await self._stream(asked, visible, query)
            except EngineLostError as error:
                losses += 1
                self._engine.lost()
                if losses > _ASKED_AGAIN:
                    text = f"{error.message} It was asked {losses} times."
                    raise ProtocolError(text, code="engine_lost") from None
                await asyncio.sleep(_PAUSE_S)
                self._begin(asked)  # the pieces so far do not count
            except PromptTooLongError as error:
                if not query.turns:
                    raise _refusal_of(error) from None
                query = replace(query, turns=query.turns[(len(query.turns) + 1) // 2 :])  # the last ones may fit
            except ReelabelError as error:
                raise _refusal_of(error) from None
            else:
                more = {"speech_s": speech_s, "turns": len(query.turns), "engine_restarts": losses}
                return None if answer is None else _done(asked, visible, answer).model_copy(update=more)
        return None

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
            produces_speech=produces_speech(self._config, self._setup),
            voice=self._config.speaker,
        )

    async def _stream(self, asked: PendingQuery, visible: Visible, query: LiveQuery) -> tuple[LiveDone | None, float]:
        """Ask, and send the pieces of the answer; return its end, None if it was ended, and its seconds in speech."""
        assert visible.prefix is not None
        asked.said.clear()
        asked.first_ms = asked.first_speech_ms = None
        speech_s = 0.0
        async with aclosing(iterate_in_thread(self._setup.model.ask(visible.prefix, query))) as pieces:
            async for piece in pieces:
                if asked.ended_by:
                    break
                if isinstance(piece, LiveDone):
                    self._said_all(asked, speech_s)
                    return piece, speech_s
                asked.first_ms = asked.first_ms or asked.waited_ms
                if isinstance(piece, Speech):
                    asked.first_speech_ms = asked.first_speech_ms or asked.waited_ms
                    speech_s += piece.seconds
                    self._say(asked, piece)
                elif piece.text:
                    asked.said.append(piece.text)
                    if asked.number is not None:
                        self._events.send(events.TextDelta(query=asked.number, delta=piece.text))
        if not asked.ended_by:
            raise InferenceError("The model has ended its answer early.")
        self._said_all(asked, speech_s)
        return None, speech_s

    def _say(self, asked: PendingQuery, speech: Speech) -> None:
        assert asked.number is not None
        kind, is_binary = self._speech_event, self._speech_event == "response.audio"
        encoded = None if is_binary else base64.b64encode(speech.data).decode()
        self._events.send(
            events.SpeechDelta(
                type=kind, query=asked.number, bytes=len(speech.data), delta=encoded, sample_rate=SPEECH_HZ
            ),
            speech.data if is_binary else b"",
        )

    def _said_all(self, asked: PendingQuery, speech_s: float) -> None:
        if speech_s and asked.number is not None:
            is_newer = self._speech_event == "response.output_audio.delta"
            kind: Literal["response.output_audio.done", "response.audio.done"] = (
                "response.output_audio.done" if is_newer else "response.audio.done"
            )
            self._events.send(events.SpeechDone(type=kind, query=asked.number))

    async def _write(self, asked: PendingQuery, visible: Visible, outcome: events.ResponseDone | ProtocolError) -> None:
        if self._record is None:
            return
        for pause_s in (*_RECORD_AGAIN_S, None):
            try:
                await in_thread(self._record.answer, self._row(asked, visible, outcome))
            except TransientError as error:
                if pause_s is None:
                    raise ProtocolError(
                        f"The query's end cannot be recorded: {error.message}", code="unavailable"
                    ) from None
                await asyncio.sleep(pause_s)
            else:
                return

    def _row(
        self, asked: PendingQuery, visible: Visible, outcome: events.ResponseDone | ProtocolError
    ) -> dict[str, Any]:
        row = {
            "query": asked.number,
            "question": asked.query.text,
            "choices": asked.query.choices,
            "asked_s": visible.asked_s,
            "frames": visible.frames,
            "last_frame_s": visible.last_frame_s if visible.prefix else None,
            "audio_s": visible.prefix.audio_s if visible.prefix else 0.0,
            "model": self._setup.info.model,
        }
        if isinstance(outcome, ProtocolError):
            ended = {"code": outcome.code, "message": outcome.message, "total_ms": asked.waited_ms}
            return row | dict.fromkeys(_TOKENS, 0) | ended
        return row | outcome.model_dump(include=_COLUMNS) | {"answer": outcome.text, "choice_index": outcome.choice}


def _refusal_of(error: ReelabelError) -> ProtocolError:
    code: messages.ErrorCode = "query_refused" if isinstance(error, PromptError) else "query_failed"
    return ProtocolError(error.message, code="prompt_too_long" if isinstance(error, PromptTooLongError) else code)


def _done(asked: PendingQuery, visible: Visible, answer: LiveDone | None = None) -> events.ResponseDone:
    assert visible.prefix is not None
    total_ms, choices = asked.waited_ms, asked.query.choices
    probabilities = answer.probabilities if answer else ()
    choice = max(range(len(probabilities)), key=probabilities.__getitem__, default=None)
    first, second, *_ = (*sorted(probabilities, reverse=True), 0.0, 0.0)
    return events.ResponseDone(
        query=asked.number or 0,
        query_id=asked.query.query_id,
        text="".join(asked.said) if choices is None or choice is None else choices[choice],
        finish_reason=answer.finish_reason if answer else "cancelled",
        choice=choice,
        probabilities=probabilities or None,
        margin=first - second if probabilities else None,
        first_token_ms=asked.first_ms or (total_ms if answer else None),
        first_speech_ms=asked.first_speech_ms,
        total_ms=total_ms,
        prompt_tokens=answer.prompt_tokens if answer else 0,
        output_tokens=answer.output_tokens if answer else 0,
        cached_tokens=answer.cached_tokens if answer else 0,
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
