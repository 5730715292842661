"""The sessions of one service: who they are, how many there may be, and when their time is over."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from typing import TYPE_CHECKING, NoReturn
from uuid import uuid4

from tasks.live.messages import ProtocolError
from tasks.live.session import Session
from tasks.live.setup import check_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.live.messages import SessionConfig, SessionResume
    from tasks.live.record.recording import Record
    from tasks.live.setup import LiveSetup

_CHECK_S = 0.5
_END_S = 20.0


class Sessions:
    """The sessions of one service. Thread-safe.

    Attributes:
        setup: What they share.
    """

    def __init__(
        self,
        setup: LiveSetup,
        *,
        max_sessions: int,
        open_record: Callable[[str, SessionConfig], Record | None] = lambda _session, _config: None,
    ) -> None:
        """Start with none.

        Args:
            setup: What they share.
            max_sessions: Maximum sessions at once, those included that wait for their clients to come back.
            open_record: Begins the record of a session, given its id; may block.
        """
        self.setup = setup
        self._max_sessions, self._open_record = max_sessions, open_record
        self._sessions: dict[str, Session] = {}
        self._opening = 0
        self._lock = threading.Condition()
        self._is_closed = threading.Event()
        self._clock = threading.Thread(target=self._check_time, name="live-clock", daemon=True)
        self._clock.start()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._sessions)

    def open(self, config: SessionConfig) -> Session:
        """Begin a session; may block.

        Raises:
            ProtocolError: There are too many, or the model does not do what the client asks for.
            TransientError: Its record cannot be begun.
        """
        check_config(config, self.setup)
        with self._lock:
            if self._is_closed.is_set():
                raise ProtocolError("The service is stopping.", code="unavailable", is_fatal=True)
            if len(self._sessions) + self._opening >= self._max_sessions:
                raise ProtocolError(
                    f"There are {self._max_sessions} sessions already, which is the limit; try again later.",
                    code="too_many_sessions",
                    is_fatal=True,
                )
            self._opening += 1
        try:
            session_id = str(uuid4())
            record = self._open_record(session_id, config)
            session = Session(
                config,
                self.setup,
                session_id=session_id,
                token=secrets.token_urlsafe(24),
                record=record,
                on_end=self._forget,
            )
            with self._lock:
                self._sessions[session_id] = session
        finally:
            with self._lock:
                self._opening -= 1
                self._lock.notify_all()
        session.begin()
        return session

    def resume(self, message: SessionResume) -> Session:
        """Find the session that a client comes back to.

        Raises:
            ProtocolError: There is none, or the token is wrong; which of the two is not told.
        """
        session = self._sessions.get(message.session_id)
        expected = session.token if session else ""
        is_known = hmac.compare_digest(message.resume_token.encode(), expected.encode())
        if session is None or not is_known or session.outbox.is_closed:
            _refuse_resumption("There is no session with this id and token, or it has ended; begin another one.")
        if message.last_seq > session.outbox.last_seq:
            _refuse_resumption(f"The session has sent {session.outbox.last_seq} events; correct last_seq.")
        return session

    def close(self) -> None:
        """End all sessions, and wait for them, and until their clients have been told."""
        deadline_s = time.monotonic() + _END_S
        with self._lock:
            self._is_closed.set()
            sessions = dict.fromkeys(self._sessions.values())
        for session in sessions:
            session.end("server_stopping")
        with self._lock:
            self._lock.wait_for(lambda: not self._opening, _END_S)
            late = dict.fromkeys(self._sessions.values())  # and what began meanwhile
        for session in late:
            session.end("server_stopping")
        for session in sessions | late:
            session.wait_ended(max(0.0, deadline_s - time.monotonic()))
        self._clock.join()

    def _forget(self, session: Session) -> None:
        with self._lock:
            self._sessions.pop(session.session_id, None)

    def _check_time(self) -> None:
        while not self._is_closed.wait(_CHECK_S):
            with self._lock:
                sessions = list(self._sessions.values())
            for session in sessions:
                session.check_time()


def _refuse_resumption(message: str) -> NoReturn:
    raise ProtocolError(message, code="resume_refused", is_fatal=True)
