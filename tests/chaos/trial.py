"""One trial: a run is broken at random moments, recovers by the documented means, and is checked."""

import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from infra.embedded import ServiceName, export

_MAX_TRIES = 10
_RUN_TIMEOUT_S = 300
_SETTLE_TIMEOUT_S = 120
_STANDING = """
SELECT job_id, label, count(*) OVER (PARTITION BY job_id) FROM (
    SELECT job_id, label FROM reelabel.result WHERE dataset = %(dataset)s
    UNION ALL SELECT job_id, code FROM reelabel.failure WHERE dataset = %(dataset)s
) AS ended
"""


@dataclass(kw_only=True)
class Outcome:
    """What a trial came to.

    Attributes:
        struck: How often each fault did.
        tries: Commands until the run ended well.
        retried_failures: Jobs that ended as failures and were asked again by `backfill --failed`.
        ran_s: Seconds of the last of them.
        wrong: What is not as it must be; empty where all is.
    """

    number: int
    by_worker: bool
    struck: Counter = field(default_factory=Counter)
    tries: int = 0
    ran_s: float = 0.0
    retried_failures: int = 0
    seconds: float = 0.0
    wrong: list = field(default_factory=list)


class Trial:
    """A run of its own dataset, with a frame cache of its own."""

    def __init__(self, world, *, number, manifest, folder):
        self.world = world
        self.dataset = f"trial-{number}"
        self._number = number
        self._manifest = manifest
        self._store = {"REELABEL_STORE_URI": f"{world.settings.store.uri}/{self.dataset}"}
        self._log = (folder / f"{self.dataset}.log").open("ab")

    def undisturbed(self):
        """Run with nothing broken; gives labels by job, and the seconds it took."""
        began = time.monotonic()
        code = self._run([], None, Outcome(number=0, by_worker=False))
        assert code == 0, f"the undisturbed run failed; see {self._log.name}"
        return {job: label for job, label, _ in self._standing()}, time.monotonic() - began

    def broken(self, faults, rng, *, labels, usual_s, by_worker):
        """Run until it ends well, while faults strike in its first two tries.

        Args:
            faults: Those that strike, in this order.
            rng: Decides when.
            labels: By job, of an undisturbed run.
            usual_s: Seconds of an undisturbed run.
            by_worker: Whether a worker runs the flow, or the command itself.
        """
        outcome = Outcome(number=self._number, by_worker=by_worker)
        began = time.monotonic()
        left = list(faults)
        while outcome.tries < _MAX_TRIES:
            outcome.tries += 1
            half = len(left) if outcome.tries > 1 else (len(left) + 1) // 2
            now, left = left[:half], left[half:]
            moments = sorted(usual_s * rng.uniform(0.1, 0.9) for _ in now)
            started = time.monotonic()
            code = self._run(list(zip(moments, now, strict=True)), rng, outcome)
            outcome.ran_s = time.monotonic() - started
            self._settle()
            if code == 0:
                break
        else:
            outcome.wrong.append(f"not ended after {_MAX_TRIES} tries")
        self._retry_failures(outcome)
        self._check(outcome, labels)
        outcome.seconds = time.monotonic() - began
        return outcome

    def _run(self, planned, rng, outcome):
        """Start the run once, strike while it goes, and wait for its end; gives its exit status."""
        run = self._start(by_worker=outcome.by_worker)
        began = time.monotonic()

        def goes_on():
            # Without a worker nobody runs it any more.
            is_orphaned = outcome.by_worker and not self.world.pid(ServiceName.WORKER)
            return run.poll() is None and not is_orphaned and time.monotonic() - began < _RUN_TIMEOUT_S

        for moment, fault in planned:
            while goes_on() and time.monotonic() - began < moment:
                time.sleep(0.05)
            while goes_on():
                if fault.strike(self.world, run.pid, rng):
                    outcome.struck[fault.name] += 1
                    self._say(f"{fault.name} at {time.monotonic() - began:.1f} s")
                    break
                time.sleep(0.1)  # what is not there yet is struck as soon as it is
        while goes_on():
            time.sleep(0.1)
        hung = run.poll() is None
        if hung:
            run.kill()
            if not outcome.by_worker:
                outcome.wrong.append(f"the run hung for {_RUN_TIMEOUT_S} s")
        code = run.wait()
        self._say(f"exit {code}")
        return code

    def _start(self, *, by_worker):
        if not by_worker:
            arguments = ["classify", self._manifest, "--dataset", self.dataset]
            return self.world.start_run(arguments, self._log, **self._store)
        parameters = {"manifest": self._manifest, "dataset": self.dataset}
        command = [sys.executable, "-P", "-m", "prefect", "deployment", "run", "classify/on-demand", "--watch"]
        command += ["--watch-interval", "1", "--params", json.dumps(parameters)]
        command += ["--job-variable", f"env={json.dumps(export(self.world.settings) | self._store)}"]
        return self.world.start(command, self._log)

    def _settle(self):
        """Wait until the services are back, as whoever starts a run again would."""
        deadline = time.monotonic() + _SETTLE_TIMEOUT_S
        while not self.world.is_whole() and time.monotonic() < deadline:
            time.sleep(0.2)

    def _retry_failures(self, outcome):
        outcome.retried_failures = len(self._failures())
        if outcome.retried_failures:
            arguments = ["backfill", "--failed", "--manifest", self._manifest, "--dataset", self.dataset]
            self.world.start_run(arguments, self._log, **self._store).wait(_RUN_TIMEOUT_S)

    def _failures(self):
        query = "SELECT code FROM reelabel.failure WHERE dataset = %s"
        with self.world.connection() as connection:
            codes = [code for (code,) in connection.execute(query, [self.dataset])]
        if codes:
            self._say(f"failures: {Counter(codes)}")
        return codes

    def _standing(self):
        with self.world.connection() as connection:
            return connection.execute(_STANDING, {"dataset": self.dataset}).fetchall()

    def _check(self, outcome, labels):
        standing = self._standing()
        doubled = {job for job, _, count in standing if count > 1}
        if doubled:
            outcome.wrong.append(f"{len(doubled)} jobs have two rows")
        found = {job: label for job, label, _ in standing}
        if found.keys() != labels.keys():
            outcome.wrong.append(f"{len(labels.keys() ^ found.keys())} jobs are missing or unknown")
        others = [job for job, label in found.items() if labels.get(job, label) != label]
        if others:
            outcome.wrong.append(f"{len(others)} labels differ, such as {others[0]}: {found[others[0]]}")
        audit = self.world.start_run(["audit"], self._log, **self._store)
        if audit.wait(_RUN_TIMEOUT_S):
            outcome.wrong.append(f"`reelabel audit` exits with {audit.returncode}")

    def _say(self, text):
        self._log.write(f"--- {text}\n".encode())
        self._log.flush()
