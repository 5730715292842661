"""A run's sign of life, and the alarm where it gets nowhere."""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefect.events import emit_event

from infra.errors import ReelabelError
from infra.wording import counted
from tasks.results.runs import mark_alive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from sqlalchemy import Engine

    from flows.progress import Progress
    from infra.upkeep_settings import NotifySettings

FAILURE_RATE = "reelabel.run.failure-rate"
STALLED = "reelabel.run.stalled"
_BEAT_S = 15.0


@contextmanager
def alive(
    engine: Engine, run_id: UUID, progress: Progress, settings: NotifySettings, *, beat_s: float = _BEAT_S
) -> Iterator[None]:
    """Have a run's row say that it lives while the work inside goes on, and emit an event where it goes wrong."""
    ended = threading.Event()
    alarm = _Alarm(run_id, progress, settings)

    def beat() -> None:
        while not ended.wait(min(beat_s, settings.stall_s)):
            # Where the database is away for a moment, the run itself will say so.
            with contextlib.suppress(ReelabelError):
                mark_alive(engine, run_id)
            alarm.look()

    # Prefect's client finds its server by the context.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(beat,), name="pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        alarm.judge_failures()


class _Alarm:
    """Tells of each trouble once; of a stall once more after jobs have ended again."""

    def __init__(self, run_id: UUID, progress: Progress, settings: NotifySettings) -> None:
        self._run_id = run_id
        self._progress = progress
        self._settings = settings
        self._last = _Moment(jobs=0, at_s=time.monotonic())
        self._told: set[str] = set()

    def look(self) -> None:
        """Judge how the run stands."""
        self.judge_failures()
        jobs, now_s = self._progress.jobs_ended, time.monotonic()
        if jobs != self._last.jobs:
            self._last = _Moment(jobs=jobs, at_s=now_s)
            self._told.discard(STALLED)
        elif now_s - self._last.at_s >= self._settings.stall_s:
            ended = f"{counted(jobs, 'job')} had ended by then"
            self._tell(STALLED, f"no job has ended for {now_s - self._last.at_s:,.0f} s; {ended}")

    def judge_failures(self) -> None:
        """Compare the share of failures with the bound."""
        ended, failed = self._progress.jobs_ended, self._progress.jobs_failed
        if ended >= self._settings.failure_jobs and failed / ended >= self._settings.failure_rate:
            self._tell(FAILURE_RATE, f"{failed:,} of {counted(ended, 'job')} failed ({failed / ended:.0%})")

    def _tell(self, event: str, what: str) -> None:
        if event in self._told:
            return
        self._told.add(event)
        run = {"prefect.resource.id": f"prefect.flow-run.{self._run_id}", "prefect.resource.role": "flow-run"}
        emit_event(
            event,
            resource={"prefect.resource.id": f"reelabel.run.{self._run_id}"},
            related=[run],
            payload={"message": f"Run {self._run_id}: {what}."},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    jobs: int
    at_s: float
