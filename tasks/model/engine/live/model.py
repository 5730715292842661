"""Answers live sessions on engines of this machine; see `tasks.live.model.LiveModel`."""

from __future__ import annotations

import secrets
import threading
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from infra.errors import EngineLostError
from reelabel.errors import DiskFullError
from reelabel.unexpected import failing_alone
from reelabel_engine.errors import ChoicesAmbiguousError, InferenceError, PromptTooLongError, SpecialTokensError
from reelabel_engine.protocol import LiveDone, LiveDrop, LiveQuery, LiveRequest, LiveText, Rejected, check
from tasks.live.model import LiveInfo, Prefix

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from tasks.model.engine.process import EngineProcess
    from tasks.model.identity import ModelInfo
    from tasks.model.running_process import PendingRequest, RunningProcess

# A long prefix is prefilled in slices: between them, questions are admitted, and the session may replace its goal.
# While an answer is generated, slices are small, as each delays its next token.
_SLICE_ITEMS, _SLICE_ITEMS_BESIDE_ANSWER = 8, 1
_ERRORS = {error.code: error for error in (PromptTooLongError, SpecialTokensError, ChoicesAmbiguousError)}


@dataclass(slots=True)
class _Request:
    """A request that has not ended, and the hashes of its items."""

    pending: PendingRequest
    hashes: tuple[str, ...]
    is_question: bool


@dataclass(slots=True, kw_only=True)
class _Session:
    """A session, and what its engine has."""

    engine: EngineProcess
    salt: str = field(default_factory=lambda: secrets.token_hex(8))
    # Hashes of the items that its prompts begin with now, and after the next eviction; and the prefilled part of each.
    goal: list[tuple[str, ...]] = field(default_factory=list)
    prefilled: list[tuple[str, ...]] = field(default_factory=list)
    sent: set[str] = field(default_factory=set)  # hashes of the items that the engine's process has
    has_audio: bool = False  # whether its prompts are those of a video with audio
    open: list[_Request] = field(default_factory=list)  # its requests that have not ended

    def known(self, hashes: Sequence[str]) -> int:
        return max((_common(each, hashes) for each in self.prefilled), default=0)

    def aim_at(self, goal: list[tuple[str, ...]]) -> None:
        """Replace the goal, and forget prefilled items that are no part of it."""
        self.goal, self.prefilled = goal, [hashes[: self.known(hashes)] for hashes in goal]

    def note(self, prefix: Prefix) -> None:
        """Forget what was prefilled before the session's first audio, with which prompts begin otherwise."""
        if prefix.has_audio and not self.has_audio:
            self.has_audio, self.prefilled = True, []

    def needed(self) -> set[str]:
        return set().union(*self.goal, *(each.hashes for each in self.open))


class EngineLiveModel:
    """Live sessions on one engine or several; a session stays on one. See `tasks.live.model.LiveModel`."""

    def __init__(self, engines: Sequence[EngineProcess], model_info: ModelInfo, *, max_frame_px: int) -> None:
        self._engines, self._model_info, self._max_frame_px = tuple(engines), model_info, max_frame_px
        self._running: dict[EngineProcess, RunningProcess] = {}
        self._sessions: dict[str, _Session] = {}
        self._lock = threading.RLock()

    def wait_ready(self) -> LiveInfo:
        infos = [engine.wait_ready() for engine in self._engines]
        return LiveInfo(
            model=self._model_info.identity.name,
            size_multiple_px=self._model_info.size_multiple_px,
            max_frame_px=self._max_frame_px,
            takes_audio=all(info.takes_audio for info in infos),
            versions=infos[0].versions,
        )

    def open(self, session: str) -> None:
        with self._lock:
            if session in self._sessions:
                raise ValueError(f"There is a session {session} already.")
            least_busy = min(self._engines, key=lambda engine: len(self._sessions_on(engine)))
            self._sessions[session] = _Session(engine=least_busy)

    def _sessions_on(self, engine: EngineProcess) -> list[_Session]:
        return [each for each in self._sessions.values() if each.engine is engine]

    def _find(self, name: str) -> _Session:
        session = self._sessions.get(name)
        if session is None:
            raise _unknown()
        return session

    def _join(self, engine: EngineProcess) -> RunningProcess:
        """Return the running process; if it is a new one, forget what its predecessor had."""
        running = engine.ensure_running()  # without the lock: ending a lost one takes a while
        with self._lock:
            if running is not self._running.get(engine):
                self._running[engine] = running
                for session in self._sessions_on(engine):
                    session.sent.clear()
                    session.prefilled.clear()
        return running

    def prefill(self, goal: Sequence[Prefix]) -> LiveDone | None:
        hashes = [tuple(item.hash for item in prefix.items) for prefix in goal]
        engine = self._find(goal[0].session).engine
        running = self._join(engine)
        with _ending_lost(engine, running):
            return self._prefill(running, goal, hashes)

    def _prefill(
        self, running: RunningProcess, goal: Sequence[Prefix], hashes: list[tuple[str, ...]]
    ) -> LiveDone | None:
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
            is_answering = any(each.is_question for one in self._sessions_on(session.engine) for each in one.open)
            read = wanted[: known + (_SLICE_ITEMS_BESIDE_ANSWER if is_answering else _SLICE_ITEMS)]
            request = self._send(running, session, prefix, read, fresh=len(read) - known)
        [done] = self._listen(running, session, request)
        assert isinstance(done, LiveDone)
        with self._lock:
            if prefix.has_audio == session.has_audio and running is self._running[session.engine]:
                session.prefilled.append(read)
        return done

    def ask(self, prefix: Prefix, query: LiveQuery) -> Generator[LiveText | LiveDone, None, None]:
        with failing_alone("Sending the question to the engine", stage=InferenceError.stage):
            check(query)
        engine = self._find(prefix.session).engine
        engine.wait_ready()
        running = self._join(engine)
        with _ending_lost(engine, running):
            with self._lock:
                session = self._find(prefix.session)
                session.note(prefix)
                request = self._send(running, session, prefix, tuple(item.hash for item in prefix.items), query=query)
            yield from self._listen(running, session, request)

    def _listen(
        self, running: RunningProcess, session: _Session, request: _Request
    ) -> Generator[LiveText | LiveDone, None, None]:
        try:
            with closing(running.replies(request.pending)) as replies:
                for _, reply in replies:
                    if isinstance(reply, Rejected):
                        raise _ERRORS.get(reply.code, InferenceError)(reply.message)
                    yield reply
        finally:
            with self._lock:
                session.open.remove(request)

    def cancel(self, session: str) -> None:
        with self._lock:
            known = self._sessions.get(session)
            questions = [each for each in known.open if each.is_question] if known else []
        for each in questions:
            each.pending.replies.put(None)

    def close_session(self, session: str) -> None:
        with self._lock:
            ended = self._sessions.pop(session, None)
            if ended is None:
                return
            for each in ended.open:
                each.pending.replies.put(_unknown())
            if running := self._running.get(ended.engine):
                running.post(LiveDrop(session=session, hashes=None))

    def close(self) -> None:
        for engine in self._engines:
            engine.close()

    def _send(
        self,
        running: RunningProcess,
        session: _Session,
        prefix: Prefix,
        hashes: tuple[str, ...],
        *,
        fresh: int = 0,
        query: LiveQuery | None = None,
    ) -> _Request:
        """Send a request with the items that the engine's process lacks. The caller holds the lock."""
        if outdated := session.sent - session.needed() - set(hashes):
            session.sent -= outdated
            running.post(LiveDrop(session=prefix.session, hashes=tuple(outdated)))
        items = {item.hash: item for item in prefix.items[: len(hashes)] if item.hash not in session.sent}
        pending = running.send(
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
            )
        )
        session.sent |= items.keys()
        session.open.append(request := _Request(pending, hashes, query is not None))
        return request


@contextmanager
def _ending_lost(engine: EngineProcess, running: RunningProcess) -> Iterator[None]:
    """Raise EngineLostError even if a full disk is the cause: sessions ask again, and fail if it stays full."""
    try:
        with engine.ending_lost(running):
            yield
    except DiskFullError as error:
        raise EngineLostError(f"The engine failed: {error.message}") from None


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))


def _unknown() -> InferenceError:
    return InferenceError("The session has ended.")
