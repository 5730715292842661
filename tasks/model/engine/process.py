"""The engine as the flow sees it: a child process that loads once and answers several batches at a time."""

from __future__ import annotations

import sys
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from infra.errors import EngineClosedError, EngineLostError
from reelabel.waiting import AbandonedError
from reelabel_engine.environment import engine_environment
from reelabel_engine.live.messages import LiveGiveUp, LiveText
from reelabel_engine.protocol import BatchGiveUp, EngineFailure, EngineInfo, EngineTimes, QuestionFailure
from tasks.domain import Answer
from tasks.model.model_process import Incarnation, LostError, ModelProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from reelabel_engine.live.messages import LiveDrop, LiveReply, LiveRequest
    from reelabel_engine.protocol import Batch, EngineConfig, QuestionReply, StepReplies
    from tasks.model.backend import Reply

VLLM_COMMAND = (sys.executable, "-P", "-m", "reelabel_engine")


class EngineProcess(ModelProcess["EngineConfig", "EngineLife"]):
    """An engine in its own process; a context manager that shuts it down.

    `start` returns at once, so that loading overlaps the extraction of the first shards; `wait_ready`
    and `answer` block. Call `answer` from several threads to keep the engine busy: while it answers one batch,
    the others are rendered.

    Attributes:
        times: How the engine spent its time.
        starts: Number of times it was started.
    """

    closed = "The engine was closed; the run is ending."
    default_command = VLLM_COMMAND
    times = EngineTimes()

    def _begin(self) -> EngineLife:
        return EngineLife(
            self._command,
            config=self._config,
            log_path=self._log_path,
            log_as_json=self._log_as_json,
            add_times=self._add_times,
            is_first=not self.starts,
        )

    def wait_ready(self) -> EngineInfo:
        """Wait until the model is loaded.

        Raises:
            ModelError: It cannot be loaded, or not within the timeout.
            DiskFullError: It cannot be loaded because a disk is full.
            EngineClosedError: The engine was closed meanwhile.
        """
        info: EngineInfo = self._ready(self._current())
        return info

    def answer(self, batch: Batch) -> list[Reply]:
        """Answer a batch; replies are in the order of its questions. Thread-safe.

        Raises:
            EngineLostError: The process died, or hung and was killed; start a new one and ask again.
            DiskFullError: The process died because a disk is full, which is no fault of a question.
            EngineClosedError: The engine was closed meanwhile.
            AbandonedError: Nobody waits for the replies any more; the engine stops working on them.
        """
        self.wait_ready()
        life = self._current()
        try:
            number, answered = life.send(batch)
            try:
                return [_reply_of(each) for each in self._wait(life, answered)]
            except AbandonedError:
                life.give_up_batch(number)
                raise
        except LostError as error:
            self._lose(life, error)
            raise self.lost_error(error) from None

    def living(self) -> EngineLife:
        """Return the process that runs or loads, for requests of live sessions; start one if none does.

        Raises:
            DiskFullError: It was lost because a disk is full.
            EngineClosedError: The engine was closed.
        """
        life = self._living()
        if life.lost is None:
            return life
        self._lose(life, life.lost)
        return self._living()

    def wait_started(self) -> EngineInfo:
        """Wait until a process has loaded the model, starting one if none runs; see `wait_ready`.

        Raises:
            ModelError: It cannot be loaded, or not within the timeout.
        """
        info: EngineInfo = self._ready(self.living())
        return info

    def lose_if_silent(self, life: EngineLife) -> None:
        """End a process that owes replies, and has sent none for too long."""
        silent_s = time.monotonic() - life.last_reply_s
        if life.info.done() and silent_s >= self._answer_timeout_s:
            self._lose(life, LostError(f"no answer within {self._answer_timeout_s:g} s"))

    def lost_error(self, error: LostError) -> EngineLostError:
        """Say that the engine was lost, and where its log is."""
        return EngineLostError(f"The engine failed: {str(error).rstrip('.')}; see the log {self._log_path}.")

    def _add_times(self, times: EngineTimes) -> None:
        self.times += times

    def _current(self) -> EngineLife:
        life = self._life
        if life is None:
            if self._is_closed:
                raise EngineClosedError(self.closed)
            raise EngineLostError("The engine is not running; start it first.")
        return life


class LiveSink(Protocol):
    """Gets the replies to one request of a live session, on the thread that receives them."""

    def reply(self, reply: LiveReply) -> None:
        """Take a reply."""

    def set_exception(self, error: BaseException) -> None:
        """Learn that the process was lost."""


class EngineLife(Incarnation[EngineInfo]):
    """One run of the engine's process; messages are pickled objects."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        config: EngineConfig,
        log_path: Path,
        log_as_json: bool,
        add_times: Callable[[EngineTimes], None],
        is_first: bool,
    ) -> None:
        """Start the process; see `Incarnation`."""
        self._add_times, self._is_first = add_times, is_first
        self._numbers = count()
        self._asked: dict[int, _PendingBatch] = {}
        self._live: dict[int, LiveSink] = {}
        super().__init__(
            command,
            environment=engine_environment(config),
            log_path=log_path,
            log_as_json=log_as_json,
            config=config,
        )

    def send(self, batch: Batch) -> tuple[int, Future[list[QuestionReply]]]:
        """Queue a batch; return its number, and a future that is done once all its questions have ended."""
        asked = _PendingBatch(missing=len(batch.questions), replies=[None] * len(batch.questions))
        with self._lock:
            number = self._next_number()
            self._asked[number] = asked
        self._outbox.put((number, batch))
        return number, asked.future

    def give_up_batch(self, number: int) -> None:
        """Have the engine stop working on a batch, if it has not ended; its future is never done."""
        with self._lock:
            if self._asked.pop(number, None) and not self._lost:
                self._outbox.put(BatchGiveUp(number=number))

    @property
    def lost(self) -> LostError | None:
        """Why it was lost; None while it runs."""
        return self._lost

    def send_live(self, build: Callable[[int], LiveRequest], sink: LiveSink) -> int:
        """Queue a request of a live session; return its number, which `build` gets, too.

        Raises:
            LostError: The process was lost.
        """
        with self._lock:
            number = self._next_number()
            self._live[number] = sink
            self._outbox.put(build(number))
        return number

    def _next_number(self) -> int:
        """Return the number of a batch or request that is about to be queued; the lock is held."""
        if self._lost:
            raise self._lost
        if not self._asked and not self._live:
            self.touch()
        return next(self._numbers)

    def give_up(self, number: int) -> None:
        """Have a request ended, if it has not; its sink gets nothing more."""
        with self._lock:
            if self._live.pop(number, None) and not self._lost:
                self._outbox.put(LiveGiveUp(number=number))

    def drop_live(self, message: LiveDrop) -> None:
        """Have items forgotten."""
        self._outbox.put(message)

    def _write(self, message: object) -> None:
        self._connection.send(message)

    def _read(self) -> EngineFailure | None:
        message = self._connection.recv()
        if isinstance(message, EngineFailure):
            return message
        self._handle(message)
        return None

    def _handle(self, message: EngineInfo | StepReplies) -> None:
        self.touch()
        if isinstance(message, EngineInfo):
            restart_ms = 0.0 if self._is_first else (self.last_reply_s - self.began_s) * 1e3
            self._add_times(EngineTimes(restart_ms=restart_ms))
        else:
            self._add_times(message.times)
        replied: list[tuple[LiveSink, LiveReply]] = []
        with self._lock:
            if self._lost:  # all waiters have been notified
                return
            if isinstance(message, EngineInfo):
                self.info.set_result(message)
                return
            for number, live_reply in message.live:
                more = isinstance(live_reply, LiveText)
                if sink := self._live.get(number) if more else self._live.pop(number, None):
                    replied.append((sink, live_reply))
            for ticket, reply in message.replies:
                asked = self._asked.get(ticket.batch)  # None once it was given up
                if asked and asked.add_reply(ticket.place, reply):
                    del self._asked[ticket.batch]
        for sink, live_reply in replied:  # without the lock: some send the next request
            sink.reply(live_reply)

    def _abandon(self) -> list[Any]:
        pending, self._asked = self._asked, {}
        live, self._live = self._live, {}
        return [*(asked.future for asked in pending.values()), *live.values()]


@dataclass(slots=True, kw_only=True)
class _PendingBatch:
    """A batch in flight; its future is done once every question has ended."""

    missing: int
    replies: list[QuestionReply | None]
    future: Future[list[QuestionReply]] = field(default_factory=Future)

    def add_reply(self, place: int, reply: QuestionReply) -> bool:
        """Record the reply to one question; return whether it was the last one."""
        self.replies[place] = reply
        self.missing -= 1
        if self.missing:
            return False
        self.future.set_result([each for each in self.replies if each is not None])
        return True


def _reply_of(reply: QuestionReply) -> Reply:
    if isinstance(reply, QuestionFailure):
        return reply
    return Answer(
        choice_index=max(range(len(reply.probabilities)), key=reply.probabilities.__getitem__),
        probabilities=reply.probabilities,
        choice_mass=reply.choice_mass,
        prompt_tokens=reply.prompt_tokens,
        cached_tokens=reply.cached_tokens,
        preprocess_ms=reply.preprocess_ms,
        inference_ms=reply.inference_ms,
    )
