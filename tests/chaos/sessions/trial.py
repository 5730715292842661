"""One trial: several clients use the service while faults are injected, and their events are compared with the
records."""

import random
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg

from tests.chaos.sessions.camera import Camera
from tests.chaos.sessions.check import check

_CAMERAS = 3
_RUN_S = 12.0
_SETTLE_S = 240.0  # a busy machine loads an engine in minutes
_AFTER_S = 3.0
_ENDED_S = 45.0
_STRIKE_S = 40.0  # until what it strikes is there
_UNENDED = """
SELECT count(*) FROM reelabel.live_session
WHERE ended_at IS NULL AND session_id = ANY(%s)
"""


@dataclass(kw_only=True)
class SessionOutcome:
    """The outcome of a trial.

    Attributes:
        struck: How often each fault was injected.
        starts: How often the service was started during it.
        sessions: Sessions that clients began.
        resumed: How often a session was resumed after its connection was lost.
        answered: Questions whose answer reached the client.
        unavailable: Those that were refused, because their end could not be recorded.
        kept: Frames that were acknowledged as kept.
        missing: Those of sessions that were lost with the service, or whose rows count them as lost.
        lost: Sessions that were lost with the service.
        seconds: Duration of the trial.
        wrong: Errors found; empty if the trial passed.
    """

    number: int
    struck: Counter = field(default_factory=Counter)
    starts: int = 0
    sessions: int = 0
    resumed: int = 0
    answered: int = 0
    unavailable: int = 0
    kept: int = 0
    missing: int = 0
    lost: int = 0
    seconds: float = 0.0
    wrong: list = field(default_factory=list)

    @property
    def what(self):
        """What ran."""
        return f"{self.sessions} sessions"

    @property
    def facts(self):
        """What became of it."""
        return (
            f"{self.answered} questions answered, {self.unavailable} refused as unavailable, {self.kept} frames kept, "
            f"{self.missing} of them missing, {self.resumed} resumptions, {self.starts} starts of the service, "
            f"{self.lost} sessions lost with it"
        )


class SessionTrial:
    """Some clients, and the sessions that they had."""

    def __init__(self, world, folder, *, number):
        self._world, self._service, self._number = world, world.service, number
        self._log = (folder / f"trial-{number}.log").open("a")

    def run_with_faults(self, faults, rng):
        """Run clients, inject the faults at random moments, and check what is left."""
        outcome, began_s = SessionOutcome(number=self._number), time.monotonic()
        self._settle(outcome)
        starts, started_s = self._service.starts, time.monotonic()
        self._world.cameras = cameras = [
            Camera(self._service, name=f"camera {number}", rng=random.Random(rng.random()))
            for number in range(_CAMERAS)
        ]
        for camera in cameras:
            camera.start()
        moments = sorted(rng.uniform(0.1, 0.9) * _RUN_S for _ in faults)
        for moment, fault in zip(moments, faults, strict=True):
            time.sleep(max(0.0, started_s + moment - time.monotonic()))
            self._strike(fault, rng, outcome)
        time.sleep(max(0.0, started_s + _RUN_S - time.monotonic()))
        self._settle(outcome)
        time.sleep(_AFTER_S)
        for camera in cameras:
            camera.end()
        for camera in cameras:
            camera.join(_SETTLE_S)
            if camera.is_alive():
                outcome.wrong.append(f"{camera.name} hangs")
        logs = [each for camera in cameras for each in camera.logs]
        outcome.starts = self._service.starts - starts
        self._write_log(f"sessions ended: {Counter(each.end for each in logs)}")
        self._wait_ended(logs, _ENDED_S / 2 if outcome.starts else _ENDED_S)
        self._check(logs, outcome)
        outcome.seconds = time.monotonic() - began_s
        return outcome

    def _strike(self, fault, rng, outcome):
        deadline = time.monotonic() + _STRIKE_S
        while time.monotonic() < deadline:
            if fault.strike(self._world, self._service.pid, rng):
                outcome.struck[fault.name] += 1
                self._write_log(fault.name)
                return
            time.sleep(0.1)

    def _settle(self, outcome):
        """Wait until Postgres, S3 and the service are back."""
        deadline = time.monotonic() + _SETTLE_S
        while not (self._world.is_healthy() and self._service.is_ready()):
            if time.monotonic() > deadline:
                outcome.wrong.append(f"the service was not back after {_SETTLE_S:g} s")
                return
            time.sleep(0.2)

    def _wait_ended(self, logs, timeout_s):
        """Wait until all sessions have an end; those that were lost with a service never get one."""
        deadline = time.monotonic() + timeout_s
        sessions = [each.session_id for each in logs if each.end != "lost"]
        while time.monotonic() < deadline:
            with suppress(psycopg.Error), self._world.connection() as connection:
                [(unended,)] = connection.execute(_UNENDED, [sessions])
                if not unended:
                    return
            time.sleep(0.3)

    def _check(self, logs, outcome):
        left = self._service.left_behind(timeout_s=15)
        if left:
            outcome.wrong.append(f"{len(left)} processes of a killed service are still there")
        outcome.sessions, outcome.resumed = len(logs), sum(each.resumed for each in logs)
        check(self._world, logs, outcome, echoes=self._service.echoes)
        is_cut = outcome.starts or outcome.struck["a client's network away"]
        if not is_cut and any(each.end == "lost" for each in logs):
            outcome.wrong.append("a session could not be resumed, though the service and the network were there")
        for line in outcome.wrong:
            self._write_log(line)

    def _write_log(self, text):
        print(time.strftime("%X"), text, file=self._log, flush=True)
