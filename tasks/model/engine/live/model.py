"""The model of live sessions on engines of this machine; see `tasks.live.model.LiveModel`."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field, fields
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

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
from tasks.live.model import Delta, LiveAnswer, LiveInfo, Prefilled
from tasks.model.model_process import LostError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from reelabel_engine.protocol import LiveReply
    from tasks.live.model import LiveQuery, Prefix
    from tasks.model.engine.process import EngineProcess
    from tasks.model.identity import ModelCard
    from tasks.model.model_process import Life

# After each slice of a long prefix, questions get their turn, and the session names its newest prefix. Beside an answer
# that is being written, slices are small: each delays the answer's next token.
_SLICE_ITEMS, _SLICE_ITEMS_BESIDE_ANSWER = 8, 1
_POLL_S = 1.0
_ERRORS = {error.code: error for error in (PromptTooLongError, SpecialTokensError, ChoicesAmbiguousError)}


@dataclass(slots=True)
class _Request:
    """A request that has not ended, the hashes of its items, and the replies to it; None cancels it."""

    hashes: tuple[str, ...]
    is_question: bool
    replies: SimpleQueue[LiveReply | BaseException | None] = field(default_factory=SimpleQueue)

    def reply(self, reply: LiveReply) -> None:
        self.replies.put(reply)

    def set_exception(self, error: BaseException) -> None:
        self.replies.put(error)


@dataclass(slots=True, kw_only=True)
class _Session:
    """What is known of a session.

    Attributes:
        goal: Hashes of the items that its prompts begin with now, and after the next eviction.
        prefilled: How far the model has read each of these, or what was the goal before.
        sent: Hashes of the items that the engine's process has.
        has_audio: Whether its prompts are those of a video with audio.
        open: Its requests that have not ended, by number.
    """

    salt: str = field(default_factory=lambda: secrets.token_hex(8))
    goal: list[tuple[str, ...]] = field(default_factory=list)
    prefilled: list[tuple[str, ...]] = field(default_factory=list)
    sent: set[str] = field(default_factory=set)
    has_audio: bool = False
    open: dict[int, _Request] = field(default_factory=dict)

    def known(self, hashes: Sequence[str]) -> int:
        """Return how many of the first items the model has read."""
        return max((_common(each, hashes) for each in self.prefilled), default=0)

    def aim_at(self, goal: list[tuple[str, ...]]) -> None:
        """Replace the goal, and forget what was read and is no part of it."""
        self.goal, self.prefilled = goal, [hashes[: self.known(hashes)] for hashes in goal]

    def note(self, prefix: Prefix) -> None:
        """Forget what was read before the session's first audio: prompts begin otherwise since."""
        if prefix.has_audio and not self.has_audio:
            self.has_audio, self.prefilled = True, []

    def needed(self) -> set[str]:
        """Return the hashes of the items that a prompt may still have."""
        return set().union(*self.goal, *(each.hashes for each in self.open.values()))


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

    def prefill(self, goal: Sequence[Prefix]) -> Prefilled | None:
        """Have the model read the next items; see `LiveModel.prefill`."""
        hashes = [tuple(item.hash for item in prefix.items) for prefix in goal]
        life = self._join()
        with self._lock:
            session = self._find(goal[0].session)
            for prefix in goal:
                session.note(prefix)
            session.aim_at(hashes)
            unread = [number for number, each in enumerate(hashes) if session.known(each) < len(each)]
            if not unread:
                return None
            prefix, wanted = goal[unread[0]], hashes[unread[0]]
            known = session.known(wanted)
            is_answering = any(each.is_question for one in self._sessions.values() for each in one.open.values())
            read = wanted[: known + (_SLICE_ITEMS_BESIDE_ANSWER if is_answering else _SLICE_ITEMS)]
            number, request = self._send(life, session, prefix, read, fresh=len(read) - known)
        try:
            [done] = self._listen(life, request)
        finally:
            self._close(life, session, number)
        assert isinstance(done, LiveDone)
        with self._lock:
            if prefix.has_audio == session.has_audio and life is self._life:
                session.prefilled.append(read)
        return Prefilled(prompt_tokens=done.prompt_tokens, cached_tokens=done.cached_tokens)

    def _join(self) -> Life:
        """Return the process that runs, which may be a new one; not for the thread that receives its replies."""
        life = self.engine.living()  # without the lock: ending a lost one waits for its threads, which may want it
        with self._lock:
            if life is not self._life:  # it knows nothing
                self._life = life
                for session in self._sessions.values():
                    session.sent.clear()
                    session.prefilled.clear()
        return life

    def _find(self, name: str) -> _Session:
        session = self._sessions.get(name)
        if session is None:
            raise _unknown()
        return session

    def ask(self, prefix: Prefix, query: LiveQuery) -> Generator[Delta | LiveAnswer, None, None]:
        """Ask a question; see `LiveModel.ask`."""
        began_s = time.perf_counter()
        with failing_alone("Sending the question to the engine", stage=InferenceError.stage):
            asked = Query(**{each.name: getattr(query, each.name) for each in fields(Query)})
            check(asked)
        self.engine.wait_started()
        life = self._join()
        hashes = tuple(item.hash for item in prefix.items)
        with self._lock:
            session = self._find(prefix.session)
            session.note(prefix)
            number, request = self._send(life, session, prefix, hashes, query=asked)
        texts: list[str] = []
        first_ms: float | None = None
        try:
            for reply in self._listen(life, request):
                now_ms = (time.perf_counter() - began_s) * 1e3
                first_ms = now_ms if first_ms is None else first_ms
                if isinstance(reply, LiveDone):
                    yield _answer(reply, query, "".join(texts), first_ms=first_ms, total_ms=now_ms)
                else:
                    texts.append(reply.text)
                    if reply.text:
                        yield Delta(text=reply.text)
        finally:
            self._close(life, session, number)

    def _listen(self, life: Life, request: _Request) -> Iterator[LiveText | LiveDone]:
        """Yield the replies to a request, up to its end, or until it is cancelled."""
        while True:
            try:
                reply = request.replies.get(timeout=_POLL_S)
            except Empty:
                self.engine.lose_if_silent(life)
                continue
            match reply:
                case None:
                    return
                case QuestionFailure():
                    raise _ERRORS.get(reply.code, InferenceError)(reply.message)
                case BaseException():
                    raise self._translate(reply)
            yield reply
            if isinstance(reply, LiveDone):
                return

    def cancel(self, session: str) -> None:
        """End the questions of a session that are being answered."""
        with self._lock:
            known = self._sessions.get(session)
            questions = [each for each in known.open.values() if each.is_question] if known else []
        for each in questions:
            each.replies.put(None)

    def forget(self, session: str) -> None:
        """End a session."""
        with self._lock:
            ended, life = self._sessions.pop(session, None), self._life
            if ended is None:
                return
            for each in ended.open.values():
                each.set_exception(_unknown())
            if life:
                life.post(LiveDrop(session=session, hashes=None))

    def _close(self, life: Life, session: _Session, number: int) -> None:
        life.give_up(number, LiveGiveUp(number=number))
        with self._lock:
            session.open.pop(number, None)

    def _send(
        self,
        life: Life,
        session: _Session,
        prefix: Prefix,
        hashes: tuple[str, ...],
        *,
        fresh: int = 0,
        query: Query | None = None,
    ) -> tuple[int, _Request]:
        """Send a request with the items that the engine's process lacks; the lock is held.

        Raises:
            EngineLostError: The process was lost.
        """
        if outdated := session.sent - session.needed() - set(hashes):
            session.sent -= outdated
            life.post(LiveDrop(session=prefix.session, hashes=tuple(outdated)))
        items = {item.hash: item for item in prefix.items[: len(hashes)] if item.hash not in session.sent}
        request = _Request(hashes, query is not None)
        try:
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
                request,
            )
        except LostError as error:
            raise self._translate(error) from None
        session.sent |= items.keys()
        session.open[number] = request
        return number, request

    def _translate(self, error: BaseException) -> BaseException:
        return self.engine.lost_error(error) if isinstance(error, LostError) else error


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

    def prefill(self, goal: Sequence[Prefix]) -> Prefilled | None:
        """Have the model read the next items of what a session's prompts begin with."""
        return self._engine_of(goal[0]).prefill(goal)

    def ask(self, prefix: Prefix, query: LiveQuery) -> Generator[Delta | LiveAnswer, None, None]:
        """Ask a question about a prefix, whether or not the model has read it."""
        yield from self._engine_of(prefix).ask(prefix, query)

    def _engine_of(self, prefix: Prefix) -> LiveEngine:
        engine = self._of.get(prefix.session)
        if engine is None:
            raise _unknown()
        return engine

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


def _unknown() -> InferenceError:
    return InferenceError("The session has ended.")
