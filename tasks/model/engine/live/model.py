"""The model of live sessions on engines of this machine; see `tasks.live.model.LiveModel`."""

from __future__ import annotations

import secrets
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from reelabel.errors import ReelabelError
from reelabel.unexpected import failing_alone
from reelabel_engine.errors import ChoicesAmbiguousError, InferenceError, PromptTooLongError, SpecialTokensError
from reelabel_engine.protocol import (
    LiveDone,
    LiveDrop,
    LiveGiveUp,
    LiveRequest,
    LiveText,
    Query,
    QuestionFailure,
    check,
)
from tasks.live.model import Delta, LiveAnswer, LiveInfo, Warmed
from tasks.model.model_process import LostError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reelabel_engine.protocol import LiveReply
    from tasks.live.model import LiveQuery, Prefix
    from tasks.model.engine.process import EngineProcess
    from tasks.model.identity import ModelCard
    from tasks.model.model_process import Life, Sink

# Between two slices of a long prefix, a question gets its turn. Beside an answer that is being written, slices are
# small: each delays the answer's next token.
_SLICE_ITEMS, _SLICE_ITEMS_BESIDE_ANSWER = 8, 1
_POLL_S = 1.0
_ERRORS = {error.code: error for error in (PromptTooLongError, SpecialTokensError, ChoicesAmbiguousError)}


@dataclass(slots=True, kw_only=True, eq=False)
class _Reading:
    """A prefix that was asked to be read."""

    prefix: Prefix
    hashes: tuple[str, ...]
    future: Future[Warmed] = field(default_factory=Future)
    began_s: float = field(default_factory=time.perf_counter)
    cached_tokens: int | None = None


@dataclass(slots=True, kw_only=True)
class _Slot:
    """One kind of prefix of a session, the current or the following one.

    Attributes:
        read: Hashes of the items that the model has read last.
        running: What it is reading.
        waiting: What it reads next.
    """

    read: tuple[str, ...] = ()
    running: _Reading | None = None
    waiting: _Reading | None = None


@dataclass(slots=True, kw_only=True)
class _Session:
    """What is known of a session.

    Attributes:
        sent: Hashes of the items that the engine's process has.
        has_audio: Whether its prompts are those of a video with audio.
        asking: Open questions by their number: the hashes of their items, and who listens.
    """

    salt: str = field(default_factory=lambda: secrets.token_hex(8))
    slots: dict[bool, _Slot] = field(default_factory=lambda: {False: _Slot(), True: _Slot()})
    sent: set[str] = field(default_factory=set)
    has_audio: bool = False
    asking: dict[int, tuple[tuple[str, ...], _Listener]] = field(default_factory=dict)

    def known(self, hashes: Sequence[str]) -> int:
        """Return how many of the first items the model has read."""
        return max(_common(slot.read, hashes) for slot in self.slots.values())

    def note(self, prefix: Prefix) -> None:
        """Forget what was read before the session's first audio: prompts begin otherwise since."""
        if prefix.has_audio and not self.has_audio:
            self.has_audio = True
            for slot in self.slots.values():
                slot.read = ()

    def needed(self) -> set[str]:
        """Return the hashes of the items that a prompt may still have."""
        needed = set().union(*(hashes for hashes, _ in self.asking.values()))
        for slot in self.slots.values():
            needed |= set(slot.read)
            for reading in filter(None, (slot.running, slot.waiting)):
                needed |= set(reading.hashes)
        return needed


class LiveEngine:
    """The sessions on one engine; thread-safe."""

    def __init__(self, engine: EngineProcess) -> None:
        """Store the engine, which is configured for live sessions."""
        self.engine = engine
        self._lock = threading.RLock()
        self._sessions: dict[str, _Session] = {}
        self._life: Life | None = None

    @property
    def sessions(self) -> int:
        """Number of open sessions."""
        return len(self._sessions)

    def open(self, session: str) -> None:
        """Make a session known."""
        with self._lock:
            self._sessions[session] = _Session()

    def warm(self, prefix: Prefix, *, following: bool) -> Future[Warmed]:
        """Have a prefix read."""
        reading = _Reading(prefix=prefix, hashes=tuple(item.hash for item in prefix.items))
        try:
            self._join()
        except ReelabelError as error:
            reading.future.set_exception(error)
            return reading.future
        with self._lock:
            session = self._sessions.get(prefix.session)
            if session is None:
                reading.future.set_exception(_unknown())
                return reading.future
            session.note(prefix)
            slot = session.slots[following]
            replaced, slot.waiting = slot.waiting, reading
        if replaced:
            replaced.future.set_result(Warmed(is_dropped=True))
        self._read_next(prefix.session, after=not following)
        return reading.future

    def _join(self) -> Life:
        """Return the process that runs, which may be a new one; not for the thread that receives its replies."""
        life = self.engine.living()  # without the lock: ending a lost one waits for its threads, which may want it
        with self._lock:
            if life is not self._life:  # it knows nothing
                self._life = life
                for session in self._sessions.values():
                    session.sent.clear()
                    for slot in session.slots.values():
                        slot.read = ()
        return life

    def _read_next(self, name: str, *, after: bool) -> None:
        """Begin to read what waits, if nothing is being read: the other kind than the last one first."""
        with self._lock:
            session = self._sessions.get(name)
            if session is None or any(slot.running for slot in session.slots.values()):
                return
            following = next((kind for kind in (not after, after) if session.slots[kind].waiting), None)
            if following is None:
                return
            slot = session.slots[following]
            slot.running, slot.waiting = slot.waiting, None
        self._read_on(name, following=following)

    def _read_on(self, name: str, *, following: bool) -> None:
        """Have the next slice of the running prefix read."""
        with self._lock:
            session, life = self._sessions.get(name), self._life
            reading = session.slots[following].running if session else None
            if session is None or reading is None or life is None:
                return
            known = session.known(reading.hashes)
            is_answering = any(each.asking for each in self._sessions.values())
            end = min(len(reading.hashes), known + (_SLICE_ITEMS_BESIDE_ANSWER if is_answering else _SLICE_ITEMS))
            sink = _Reader(self, name, reading, following=following, end=end)
            try:
                self._send(life, session, reading.prefix, reading.hashes[:end], sink, fresh=end - known)
            except LostError as error:
                lost = error
            else:
                return
        self.failed(name, reading, lost, following=following)

    def read(self, name: str, reading: _Reading, done: LiveDone, *, following: bool, end: int) -> None:
        """Note that a slice was read, and go on."""
        with self._lock:
            session = self._sessions.get(name)
            slot = session.slots[following] if session else None
            if slot is None or slot.running is not reading:
                return
            if session and reading.prefix.has_audio == session.has_audio:
                slot.read = reading.hashes[:end]
            if reading.cached_tokens is None:
                reading.cached_tokens = done.cached_tokens
            is_last = end == len(reading.hashes)
            goes_on = not is_last and slot.waiting is None
            if not goes_on:
                slot.running = None
        if goes_on:
            self._read_on(name, following=following)
            return
        if is_last:
            warmed = Warmed(
                prompt_tokens=done.prompt_tokens,
                cached_tokens=reading.cached_tokens,
                total_ms=(time.perf_counter() - reading.began_s) * 1e3,
            )
        else:
            warmed = Warmed(is_dropped=True)
        reading.future.set_result(warmed)
        self._read_next(name, after=following)

    def failed(self, name: str, reading: _Reading, error: BaseException, *, following: bool) -> None:
        """End the reading of a prefix; if the engine was lost, that of all that wait."""
        ended: list[_Reading] = []
        is_lost = isinstance(error, LostError)
        with self._lock:
            session = self._sessions.get(name)
            if session is None or session.slots[following].running is not reading:
                return
            session.slots[following].running = None
            ended.append(reading)
            for slot in session.slots.values() if is_lost else ():
                ended += filter(None, [slot.waiting])
                slot.waiting = None
        for each in ended:
            each.future.set_exception(self._translate(error))
        if not is_lost:
            self._read_next(name, after=following)

    def ask(self, prefix: Prefix, query: LiveQuery) -> Iterator[Delta | LiveAnswer]:
        """Ask a question; see `LiveModel.ask`."""
        began_s = time.perf_counter()
        with failing_alone("Sending the question to the engine", stage=InferenceError.stage):
            asked = _asked(query)
            check(asked)
        self.engine.wait_started()
        life = self._join()
        hashes = tuple(item.hash for item in prefix.items)
        sink = _Listener()
        with self._lock:
            session = self._sessions.get(prefix.session)
            if session is None:
                raise _unknown()
            session.note(prefix)
            try:
                number = self._send(life, session, prefix, hashes, sink, query=asked)
            except LostError as error:
                raise self._translate(error) from None
            session.asking[number] = hashes, sink
        try:
            yield from self._listen(life, sink, query, began_s)
        finally:
            life.give_up(number, LiveGiveUp(number=number))
            with self._lock:
                session.asking.pop(number, None)

    def _listen(self, life: Life, sink: _Listener, query: LiveQuery, began_s: float) -> Iterator[Delta | LiveAnswer]:
        texts: list[str] = []
        first_ms: float | None = None
        while True:
            try:
                reply = sink.replies.get(timeout=_POLL_S)
            except Empty:
                self.engine.lose_if_silent(life)
                continue
            if reply is None:
                return
            now_ms = (time.perf_counter() - began_s) * 1e3
            first_ms = now_ms if first_ms is None else first_ms
            if isinstance(reply, LiveText):
                texts.append(reply.text)
                if reply.text:
                    yield Delta(text=reply.text)
            elif isinstance(reply, LiveDone):
                yield _answer(reply, query, "".join(texts), first_ms=first_ms, total_ms=now_ms)
                return
            else:
                raise self._translate(reply) if isinstance(reply, BaseException) else _error_of(reply)

    def cancel(self, session: str) -> None:
        """End the questions of a session that are being answered."""
        with self._lock:
            known, life = self._sessions.get(session), self._life
            for number, (_, listener) in [*known.asking.items()] if known and life else ():
                life.give_up(number, LiveGiveUp(number=number))  # type: ignore[union-attr]  # one of the two conditions
                listener.replies.put(None)

    def forget(self, session: str) -> None:
        """End a session."""
        with self._lock:
            ended = self._sessions.pop(session, None)
            life = self._life
        if ended is None:
            return
        if life:
            for number, (_, listener) in [*ended.asking.items()]:
                life.give_up(number, LiveGiveUp(number=number))
                listener.set_exception(_unknown())
            life.post(LiveDrop(session=session, hashes=None))
        for slot in ended.slots.values():
            for reading in filter(None, (slot.running, slot.waiting)):
                reading.future.set_result(Warmed(is_dropped=True))

    def _send(
        self,
        life: Life,
        session: _Session,
        prefix: Prefix,
        hashes: tuple[str, ...],
        sink: Sink,
        *,
        fresh: int = 0,
        query: Query | None = None,
    ) -> int:
        """Send a request with the items that the engine's process lacks; the lock is held.

        Raises:
            LostError: The process was lost.
        """
        if outdated := session.sent - session.needed() - set(hashes):
            session.sent -= outdated
            life.post(LiveDrop(session=prefix.session, hashes=tuple(outdated)))
        items = {item.hash: item for item in prefix.items[: len(hashes)] if item.hash not in session.sent}
        number = life.send(
            lambda number: LiveRequest(
                number=number,
                session=prefix.session,
                salt=session.salt,
                system_prompt=prefix.system_prompt,
                has_audio=prefix.has_audio,
                hashes=hashes,
                items=items,
                fresh=fresh,
                query=query,
            ),
            sink,
        )
        session.sent |= items.keys()
        return number

    def _translate(self, error: BaseException) -> BaseException:
        return self.engine.lost_error(error) if isinstance(error, LostError) else error


class _Reader:
    """Takes the reply to a slice of a prefix."""

    def __init__(self, engine: LiveEngine, session: str, reading: _Reading, *, following: bool, end: int) -> None:
        self._engine, self._session, self._reading = engine, session, reading
        self._following, self._end = following, end

    def reply(self, reply: LiveReply) -> None:
        if isinstance(reply, LiveDone):
            self._engine.read(self._session, self._reading, reply, following=self._following, end=self._end)
        elif isinstance(reply, QuestionFailure):
            self.set_exception(_error_of(reply))

    def set_exception(self, error: BaseException) -> None:
        self._engine.failed(self._session, self._reading, error, following=self._following)


class _Listener:
    """Queues the replies to a question."""

    def __init__(self) -> None:
        self.replies: SimpleQueue[LiveReply | BaseException | None] = SimpleQueue()  # None: cancelled

    def reply(self, reply: LiveReply) -> None:
        self.replies.put(reply)

    def set_exception(self, error: BaseException) -> None:
        self.replies.put(error)


class EngineLiveModel:
    """Live sessions on one engine or several; a session stays on one. See `tasks.live.model.LiveModel`."""

    def __init__(self, engines: Sequence[EngineProcess], card: ModelCard, *, max_frame_px: int) -> None:
        """Store engines that are each configured for live sessions; nothing is started yet."""
        self._engines = [LiveEngine(engine) for engine in engines]
        self._card = card
        self._max_frame_px = max_frame_px
        self._lock = threading.Lock()
        self._of: dict[str, LiveEngine] = {}

    def start(self) -> None:
        """Start loading, or reload after a loss; return at once."""
        for each in self._engines:
            each.engine.living()

    def wait_ready(self) -> LiveInfo:
        """Wait until questions can be answered."""
        infos = [each.engine.wait_started() for each in self._engines]
        return LiveInfo(
            model=self._card.identity.name,
            device=infos[0].device,
            max_tokens=min(info.max_model_len for info in infos),
            size_multiple_px=self._card.size_multiple_px,
            max_frame_px=self._max_frame_px,
            takes_audio=all(info.takes_audio for info in infos),
            versions=infos[0].versions,
        )

    def open(self, session: str) -> None:
        """Make a session known, on the engine with the fewest."""
        with self._lock:
            if session in self._of:
                raise ValueError(f"There is a session {session} already.")
            self._of[session] = min(self._engines, key=lambda each: each.sessions)
            self._of[session].open(session)

    def warm(self, prefix: Prefix, *, following: bool = False) -> Future[Warmed]:
        """Have the model read a prefix; return at once."""
        engine = self._of.get(prefix.session)
        if engine is None:
            refused: Future[Warmed] = Future()
            refused.set_exception(_unknown())
            return refused
        return engine.warm(prefix, following=following)

    def ask(self, prefix: Prefix, query: LiveQuery) -> Iterator[Delta | LiveAnswer]:
        """Ask a question about a prefix, whether or not the model has read it."""
        engine = self._of.get(prefix.session)
        if engine is None:
            raise _unknown()
        yield from engine.ask(prefix, query)

    def cancel(self, session: str) -> None:
        """End the question of a session that is being answered, if there is one."""
        if engine := self._of.get(session):
            engine.cancel(session)

    def forget(self, session: str) -> None:
        """End a session; idempotent."""
        with self._lock:
            engine = self._of.pop(session, None)
        if engine:
            engine.forget(session)

    def close(self) -> None:
        """End the engines' processes; idempotent."""
        for each in self._engines:
            each.engine.close()


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of what two sequences begin with in common."""
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return place
    return min(len(one), len(other))


def _answer(done: LiveDone, query: LiveQuery, text: str, *, first_ms: float, total_ms: float) -> LiveAnswer:
    chosen = max(range(len(query.choices)), key=done.probabilities.__getitem__) if query.choices else None
    return LiveAnswer(
        text=text if chosen is None else query.choices[chosen],
        finish_reason=done.finish_reason,
        choice_index=chosen,
        probabilities=done.probabilities,
        prompt_tokens=done.prompt_tokens,
        cached_tokens=done.cached_tokens,
        output_tokens=done.output_tokens,
        first_token_ms=first_ms,
        total_ms=total_ms,
    )


def _asked(query: LiveQuery) -> Query:
    return Query(
        text=query.text,
        turns=query.turns,
        choices=query.choices,
        scoring=query.scoring,
        max_tokens=query.max_tokens,
        temperature=query.temperature,
        top_p=query.top_p,
        seed=query.seed,
    )


def _error_of(failure: QuestionFailure) -> ReelabelError:
    return _ERRORS.get(failure.code, InferenceError)(failure.message)


def _unknown() -> InferenceError:
    return InferenceError("The session has ended.")
