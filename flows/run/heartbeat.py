"""A run's heartbeat, and events for runs in trouble."""

from __future__ import annotations

import contextvars
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from prefect.events import emit_event

from reelabel.errors import ReelabelError
from reelabel.text import pluralize
from tasks.results.runs import record_heartbeat

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from sqlalchemy import Engine

    from flows.run.progress import Progress

FAILURE_RATE = "reelabel.run.failure-rate"
STALLED = "reelabel.run.stalled"
_BEAT_S = 15.0
# Bad videos alone rarely fail a fifth of the jobs; the rate means little before this many have ended.
_FAILURE_RATE, _FAILURE_JOBS = 0.2, 100
# Seconds without a finished job, the time to load a model included, after which a run counts as stalled.
_STALL_S = 1800.0


@contextmanager
def heartbeat(database: Engine, run_id: UUID, progress: Progress, *, beat_s: float = _BEAT_S) -> Iterator[None]:
    """Update the heartbeat in a run's row while the body runs, and emit an event if the run is in trouble."""
    ended = threading.Event()
    alarm = _Alarm(run_id, progress)

    def beat() -> None:
        while not ended.wait(beat_s):
            # If the database is briefly unavailable, the run itself reports it.
            with suppress(ReelabelError):
                record_heartbeat(database, run_id)
            alarm.check()

    # Prefect's client finds its server through the context.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(beat,), name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        alarm.check_failure_rate()


class _Alarm:
    """Emits each event once; a stall is emitted again after further progress."""

    def __init__(self, run_id: UUID, progress: Progress) -> None:
        self._run_id = run_id
        self._progress = progress
        self._jobs, self._progressed_s = 0, time.monotonic()
        self._emitted: set[str] = set()

    def check(self) -> None:
        self.check_failure_rate()
        jobs, now_s = self._progress.jobs_ended, time.monotonic()
        if jobs != self._jobs:
            self._jobs, self._progressed_s = jobs, now_s
            self._emitted.discard(STALLED)
        elif (stalled_s := now_s - self._progressed_s) >= _STALL_S:
            self._emit(STALLED, f"no job has ended for {stalled_s:,.0f} s; {pluralize(jobs, 'job')} had ended before")

    def check_failure_rate(self) -> None:
        ended, failed = self._progress.jobs_ended, self._progress.tally["jobs_failed"]
        if ended >= _FAILURE_JOBS and failed / ended >= _FAILURE_RATE:
            self._emit(FAILURE_RATE, f"{failed:,} of {pluralize(ended, 'job')} failed ({failed / ended:.0%})")

    def _emit(self, event: str, what: str) -> None:
        if event in self._emitted:
            return
        self._emitted.add(event)
        run = {"prefect.resource.id": f"prefect.flow-run.{self._run_id}", "prefect.resource.role": "flow-run"}
        emit_event(
            event,
            resource={"prefect.resource.id": f"reelabel.run.{self._run_id}"},
            related=[run],
            payload={"message": f"Run {self._run_id}: {what}."},
        )
