"""What a team asks of one machine at the same time."""

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import polars as pl

from reelabel.sources.object_store import ObjectStore
from tasks.demo.clips import make_demo
from tests.chaos.sessions.camera import Camera

CLIPS = 48
_JOBS_AT_ONCE = 12
_ARRIVAL_S, _NIGHTLY_S, _BACKFILL_S, _REQUEST_S = 100.0, 170.0, 240.0, 2.0
_REQUEST_TIMEOUT_S = 120.0


@dataclass
class Sent:
    """What was asked for.

    Attributes:
        jobs: Jobs by dataset: the video, the question and the choices of each, by its id.
        backfilled: Ids that were run again, by dataset.
        labels: Labels that single requests got, by video and question.
        statuses: How often a request of each route got each status.
        wrong: Errors found.
    """

    jobs: dict = field(default_factory=dict)
    backfilled: dict = field(default_factory=dict)
    labels: dict = field(default_factory=dict)
    statuses: Counter = field(default_factory=Counter)
    wrong: list = field(default_factory=list)


class Load:
    """Puts a machine to work until it is ended: manifests that arrive, a schedule, backfills, requests, and a camera.

    Attributes:
        sent: What was asked for so far.
        logs: The live sessions so far.
    """

    def __init__(self, machine, *, seed):
        """Upload the clips, and begin."""
        self.sent = Sent()
        self._machine, self._objects = machine, ObjectStore(machine.settings.store)
        self._rng, self._ended = random.Random(seed), threading.Event()
        self._jobs = self._upload(seed)
        self._camera = Camera(machine, name="camera", rng=random.Random(seed), answers_within_s=_REQUEST_TIMEOUT_S)
        self._threads = [
            threading.Thread(target=self._repeat, args=(work, every_s), name=work.__name__, daemon=True)
            for work, every_s in (
                (self._arrive, _ARRIVAL_S),
                (self._add_to_nightly, _NIGHTLY_S),
                (self._backfill, _BACKFILL_S),
                (self._ask, _REQUEST_S),
            )
        ]
        for thread in (*self._threads, self._camera):
            thread.start()

    @property
    def logs(self):
        return list(self._camera.logs)

    def end(self):
        """Ask for nothing more, and wait for what is in progress."""
        self._ended.set()
        self._camera.end()
        for thread in (*self._threads, self._camera):
            thread.join(3 * _REQUEST_TIMEOUT_S)
            if thread.is_alive():
                self.sent.wrong.append(f"{thread.name} hangs")

    def _upload(self, seed):
        root = f"{self._machine.settings.store.uri}/clips"
        with TemporaryDirectory() as folder:
            jobs = make_demo(Path(folder), seed=seed, clips=CLIPS, uri_prefix=root)
            for path in Path(folder).glob("clip-*"):
                self._objects.replace(f"{root}/{path.name}", path.read_bytes())
        return jobs

    def _repeat(self, work, every_s):
        number = 0
        while not self._ended.is_set():
            number += 1
            began_s = time.monotonic()
            try:
                work(number)
            except Exception as error:  # noqa: BLE001 - whatever it is, the soak has found it
                self.sent.wrong.append(f"{work.__name__} {number}: {error!r}")
            self._ended.wait(max(0.0, every_s - (time.monotonic() - began_s)))

    def _arrive(self, number):
        self._write(f"{self._machine.inbox}/arrival-{number}.parquet", dataset=f"arrival-{number}", number=number)

    def _add_to_nightly(self, number):
        self._write(f"{self._machine.nightly}/part-{number}.parquet", dataset="nightly", number=number)

    def _write(self, uri, *, dataset, number):
        jobs = self._jobs.sample(_JOBS_AT_ONCE, seed=self._rng.randrange(2**32))
        jobs = jobs.with_columns(pl.format("{}-{}", "job_id", pl.lit(number)))
        with TemporaryDirectory() as folder:
            path = Path(folder, "manifest.parquet")
            jobs.write_parquet(path)
            self._objects.replace(uri, path.read_bytes())
        known = self.sent.jobs.setdefault(dataset, {})
        known |= {row["job_id"]: _key(row) for row in jobs.iter_rows(named=True)}

    def _backfill(self, number):
        done = [name for name in self.sent.jobs if name.startswith("arrival-")][:-2]
        if not done:
            return
        dataset = self._rng.choice(done)
        ids = self._rng.sample(sorted(self.sent.jobs[dataset]), 3)
        manifest = f"{self._machine.inbox}/{dataset}.parquet"
        ended = self._machine.run(
            "backfill", "--ids", ",".join(ids), "--force", "--manifest", manifest, "--dataset", dataset
        )
        if ended.returncode:
            self.sent.wrong.append(
                f"backfill {number} of {dataset} ended with {ended.returncode}: {ended.stdout[-500:]}"
            )
        self.sent.backfilled.setdefault(dataset, set()).update(ids)

    def _ask(self, number):
        job = self._jobs.row(self._rng.randrange(len(self._jobs)), named=True)
        route = "analyze" if number % 5 == 0 else "classify"
        body = {"video_uri": job["video_uri"]}
        body |= {"prompt": job["prompt"], "choices": job["choices"]} if route == "classify" else {}
        answer = httpx.post(f"{self._machine.url}/v1/{route}", json=body, timeout=_REQUEST_TIMEOUT_S)
        self.sent.statuses[route, answer.status_code] += 1
        if not answer.is_success:
            self.sent.wrong.append(f"{route} answered {answer.status_code}: {answer.text[:200]}")
        elif route == "classify":
            label = answer.json()["label"]
            if self.sent.labels.setdefault(_key(job), label) != label:
                self.sent.wrong.append(f"{_key(job)} was labelled {label} and {self.sent.labels[_key(job)]}")


def _key(job):
    return job["video_uri"], job["prompt"], *job["choices"]
