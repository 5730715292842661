"""One trial: inject faults into a run at random moments, recover as documented, and check the result."""

import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from infra.embedded import ServiceName, export
from tests.chaos.files import copy_cache

_MAX_TRIES = 10
_RUN_TIMEOUT_S = 300
_SETTLE_TIMEOUT_S = 120
_CHUNK_S = 1.5  # clips last three to six seconds
# What is said of a video is compared but for its scores: their last digits depend on what shared a batch with it.
_CURRENT_ROWS = """
SELECT job_id, label, count(*) OVER (PARTITION BY job_id) FROM (
    SELECT job_id, coalesce(label, text, data::text) AS label FROM reelabel.result WHERE dataset = %(dataset)s
    UNION ALL SELECT job_id, code FROM reelabel.failure WHERE dataset = %(dataset)s
    UNION ALL SELECT job_id, concat_ws(
        ', ', tags -> 0 ->> 'text', caption, frames_used || ' frames', scene_changes || ' changes', duration_s || ' s'
    ) FROM reelabel.description WHERE dataset = %(dataset)s
) AS ended
"""
_INCOMPLETE = """
SELECT count(*) FROM reelabel.description AS d WHERE dataset = %(dataset)s AND chunks <> (
    SELECT count(*) FROM reelabel.description_chunk AS c
    WHERE (c.dataset, c.job_id, c.spec_id) = (d.dataset, d.job_id, d.spec_id)
)
"""
_REWRITTEN = "SELECT coalesce(sum(videos_rewritten), 0)::bigint FROM reelabel.run WHERE dataset = %(dataset)s"


def _dataset(number, *, by_chunks):
    return f"trial-{number}{'-by-chunks' if by_chunks else ''}"


@dataclass(kw_only=True)
class Outcome:
    """The outcome of a trial.

    Attributes:
        by_worker: Whether a worker ran the flow, instead of the command itself.
        by_chunks: Whether each chunk of a clip was asked about.
        struck: How often each fault was injected.
        tries: Number of attempts until the run succeeded.
        altered: Number of frame and index files in its cache that were altered before the run.
        rewritten: Number of videos whose files were rewritten, as the rows of its runs say.
        ran_s: Seconds of the last attempt.
        retried_failures: Failed jobs retried by `backfill --failed`.
        seconds: Duration of the trial.
        wrong: Errors found; empty if the trial passed.
    """

    number: int
    by_worker: bool
    by_chunks: bool = False
    struck: Counter = field(default_factory=Counter)
    tries: int = 0
    altered: int = 0
    rewritten: int = 0
    ran_s: float = 0.0
    retried_failures: int = 0
    seconds: float = 0.0
    wrong: list = field(default_factory=list)

    @property
    def what(self):
        """What ran."""
        return ("by a worker" if self.by_worker else "by the command") + (", by chunks" if self.by_chunks else "")

    @property
    def facts(self):
        """What became of it."""
        return (
            f"{self.tries} tries, {self.altered} cached files altered and {self.rewritten} rewritten, "
            f"{self.retried_failures} failures retried"
        )


class Trial:
    """A run with a separate dataset and frame cache; number 0 is undisturbed."""

    def __init__(self, world, *, number, manifest, folder, command="classify", by_chunks=False):
        self.world = world
        self._command = command
        self.dataset = _dataset(number, by_chunks=by_chunks)
        self._number = number
        self._by_chunks = by_chunks
        self._manifest = manifest
        world.trial_uri, world.altered = f"{world.settings.store.uri}/{self.dataset}", set()
        self._store = {"REELABEL_STORE_URI": world.trial_uri}
        self._log = (folder / f"{self.dataset}.log").open("ab")

    def run_undisturbed(self):
        """Run without faults; return labels by job, and the seconds it took."""
        began = time.monotonic()
        code = self._run([], None, Outcome(number=0, by_worker=False))
        assert code == 0, f"the undisturbed run failed; see {self._log.name}"
        return {job: label for job, label, _ in self._current_rows()}, time.monotonic() - began

    def run_with_faults(self, faults, rng, *, labels, usual_s, by_worker):
        """Run until it succeeds, injecting faults into the first two attempts.

        Args:
            faults: Faults to inject, in this order.
            rng: Chooses the times.
            labels: Expected labels by job, from an undisturbed run.
            usual_s: Duration of an undisturbed run.
            by_worker: Whether a worker runs the flow, instead of the command itself.
        """
        outcome = Outcome(number=self._number, by_worker=by_worker, by_chunks=self._by_chunks)
        began = time.monotonic()
        self._alter_cache([fault for fault in faults if fault.needs == "cache"], rng, outcome)
        left = [fault for fault in faults if fault.needs != "cache"]
        is_counted = not left
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
            outcome.wrong.append(f"still failing after {_MAX_TRIES} attempts")
        self._retry_failures(outcome)
        self._check(outcome, labels)
        if is_counted and outcome.rewritten != outcome.altered:  # else the run may have been killed before it counted
            outcome.wrong.append(
                f"{outcome.altered} cached files were altered, but the files of {outcome.rewritten} videos rewritten"
            )
        outcome.seconds = time.monotonic() - began
        return outcome

    def _alter_cache(self, faults, rng, outcome):
        if not faults:
            return
        undisturbed = f"{self.world.settings.store.uri}/{_dataset(0, by_chunks=self._by_chunks)}"
        self.world.index_keys = copy_cache(self.world.settings.store, undisturbed, self.world.trial_uri)
        for fault in faults:
            if fault.strike(self.world, None, rng):  # earlier ones may have left nothing to alter
                outcome.struck[fault.name] += 1
                self._log_line(f"{fault.name} before the run")
        outcome.altered = len(self.world.altered)

    def _run(self, planned, rng, outcome):
        """Start the run, inject faults while it is running, and wait for its end; return its exit status."""
        run = self._start(by_worker=outcome.by_worker)
        began = time.monotonic()

        def is_running():
            # If the worker is gone, nothing executes the run any more.
            is_orphaned = outcome.by_worker and not self.world.pid(ServiceName.WORKER)
            return run.poll() is None and not is_orphaned and time.monotonic() - began < _RUN_TIMEOUT_S

        for moment, fault in planned:
            while is_running() and time.monotonic() - began < moment:
                time.sleep(0.05)
            while is_running():
                if fault.strike(self.world, run.pid, rng):
                    outcome.struck[fault.name] += 1
                    self._log_line(f"{fault.name} at {time.monotonic() - began:.1f} s")
                    break
                time.sleep(0.1)  # retry until the fault's target exists
        while is_running():
            time.sleep(0.1)
        hung = run.poll() is None
        if hung:
            run.kill()
            if not outcome.by_worker:
                outcome.wrong.append(f"the run hung for {_RUN_TIMEOUT_S} s")
        code = run.wait()
        self._log_line(f"exit {code}")
        return code

    def _start(self, *, by_worker):
        if not by_worker:
            arguments = [self._command, self._manifest, "--dataset", self.dataset]
            arguments += ["--chunk-s", str(_CHUNK_S)] if self._by_chunks else []
            return self.world.start_run(arguments, self._log, **self._store)
        parameters = {"manifest": self._manifest, "dataset": self.dataset}
        parameters |= {"overrides": {"chunks": {"chunk_s": _CHUNK_S}}} if self._by_chunks else {}
        command = [sys.executable, "-P", "-m", "prefect", "deployment", "run", f"{self._command}/on-demand"]
        command += ["--watch", "--watch-interval", "1", "--params", json.dumps(parameters)]
        command += ["--job-variable", f"env={json.dumps(export(self.world.settings) | self._store)}"]
        return self.world.start(command, self._log)

    def _settle(self):
        """Wait until the services are back, as a user would before restarting a run."""
        deadline = time.monotonic() + _SETTLE_TIMEOUT_S
        while not self.world.is_healthy() and time.monotonic() < deadline:
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
            self._log_line(f"failures: {Counter(codes)}")
        return codes

    def _current_rows(self):
        with self.world.connection() as connection:
            return connection.execute(_CURRENT_ROWS, {"dataset": self.dataset}).fetchall()

    def _check(self, outcome, labels):
        rows = self._current_rows()
        doubled = {job for job, _, count in rows if count > 1}
        if doubled:
            outcome.wrong.append(f"{len(doubled)} jobs have two rows")
        found = {job: label for job, label, _ in rows}
        if found.keys() != labels.keys():
            outcome.wrong.append(f"{len(labels.keys() ^ found.keys())} jobs are missing or unexpected")
        different = [job for job, label in found.items() if labels.get(job, label) != label]
        if different:
            outcome.wrong.append(f"{len(different)} answers differ, such as {different[0]}: {found[different[0]]}")
        with self.world.connection() as connection:
            [(incomplete,)] = connection.execute(_INCOMPLETE, {"dataset": self.dataset})
            if incomplete:
                outcome.wrong.append(f"{incomplete} descriptions lack chunks")
            [(outcome.rewritten,)] = connection.execute(_REWRITTEN, {"dataset": self.dataset})
        audit = self.world.start_run(["audit"], self._log, **self._store)
        if audit.wait(_RUN_TIMEOUT_S):
            outcome.wrong.append(f"`reelabel audit` exited with {audit.returncode}")

    def _log_line(self, text):
        self._log.write(f"--- {text}\n".encode())
        self._log.flush()
