"""The sessions of one service: their number is limited, and their clients can resume them."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from functools import partial
from typing import TYPE_CHECKING, NoReturn
from uuid import uuid4

from tasks.live.messages import ProtocolError, SessionConfig, SessionResume
from tasks.live.session import Session
from tasks.live.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.live.record.recorder import SessionRecord
    from tasks.live.setup import LiveSetup

_END_S = 20.0


class Sessions:
    """The sessions of one service, on its event loop."""

    def __init__(
        self,
        setup: LiveSetup,
        *,
        open_record: Callable[[str, SessionConfig], SessionRecord | None] = lambda _session, _config: None,
    ) -> None:
        """Start with none; `open_record` opens the record of a session, given its id, and may block."""
        self.setup = setup
        self._open_record = open_record
        self._sessions: dict[str, Session] = {}
        self._opening = 0
        self._tasks: set[asyncio.Task[None]] = set()  # also of those that are being opened
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._sessions)

    async def open(self, config: SessionConfig) -> Session:
        """Begin a session.

        Raises:
            ProtocolError: There are too many, or its window is too large.
            TransientError: Its record cannot be opened.
        """
        most = self.setup.settings.max_window_frames
        if config.window is not None and 2 * config.window + config.sink > most:
            raise ProtocolError(
                f"With a window of {config.window:,} frames, a query sees up to twice as many and the sink; "
                f"{most:,} are allowed.",
                code="limit_reached",
                is_fatal=True,
            )
        if self._is_closed:
            raise ProtocolError("The service is stopping.", code="unavailable", is_fatal=True)
        most = self.setup.settings.max_sessions
        if len(self._sessions) + self._opening >= most:
            raise ProtocolError(
                f"There are {most} sessions already, which is the limit; try again later.",
                code="too_many_sessions",
                is_fatal=True,
            )
        if config.system_prompt is None:  # here, because it is recorded
            config = config.model_copy(update={"system_prompt": self.setup.system_prompt})
        self._opening += 1
        opened: asyncio.Future[Session] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._run(config, opened))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(opened)  # the session waits for its client

    async def _run(self, config: SessionConfig, opened: asyncio.Future[Session]) -> None:
        session_id = str(uuid4())
        try:
            record = await in_thread(self._open_record, session_id, config)
            token = secrets.token_urlsafe(24)
            session = Session(config, self.setup, session_id=session_id, token=token, record=record)
        except Exception as error:  # noqa: BLE001 - for the caller of `open`
            opened.set_exception(error)
            return
        finally:
            self._opening -= 1
        self._sessions[session_id] = session
        opened.set_result(session)
        if self._is_closed:
            session.end("server_stopping")
        await session.run(on_end=partial(self._forget, session_id))
        await session.is_disconnected.wait()

    def _forget(self, session_id: str) -> None:
        del self._sessions[session_id]

    def resume(self, message: SessionResume) -> Session:
        """Return the session that a client resumes.

        Raises:
            ProtocolError: There is none, or the token is wrong; the message does not tell which.
        """
        session = self._sessions.get(message.session_id)
        expected = session.token if session else ""
        is_known = hmac.compare_digest(message.resume_token.encode(), expected.encode())
        if session is None or not is_known or session.events.is_closed:
            _refuse_resumption("There is no session with this id and token, or it has ended; begin another one.")
        if message.last_seq > (sent := session.events.last_seq):
            _refuse_resumption(f"last_seq is {message.last_seq}, but this session has sent only {sent} events.")
        return session

    async def close(self) -> None:
        """End all sessions; wait until their clients have been notified, for at most 20 seconds."""
        self._is_closed = True
        for session in self._sessions.values():
            session.end("server_stopping")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_END_S)


def _refuse_resumption(message: str) -> NoReturn:
    raise ProtocolError(message, code="resume_refused", is_fatal=True)
