"""The measured steps of runs and commands, without videos."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import polars as pl

from benchmarks.scale.synthetic import DATASET, RUN, fingerprints_of
from infra.database.connect import connect
from infra.settings import StoreSettings
from reelabel.sources.object_store import ObjectStore
from tasks.database.scope import Scope
from tasks.domain import Answer, DescribeSpec, Failure, Job, JobResult, RunSpec, Stage
from tasks.domain.provenance import FrameProvenance
from tasks.manifest.parquet import open_manifest
from tasks.manifest.plan_file import PlanWriter, split_into_shards
from tasks.manifest.table import open_jobs, read_unchecked_batches
from tasks.model.prompts.ambiguity import find_ambiguous_jobs
from tasks.plans.plan import Plan, open_plan
from tasks.results.audit import audit_jobs
from tasks.results.choose import choose_jobs
from tasks.results.pending import pending_jobs, refresh_annotations
from tasks.results.search_catalogue import DatabaseCatalogue
from tasks.results.selection import Selection
from tasks.results.write import ShardWriter

if TYPE_CHECKING:
    from threading import Barrier

    from sqlalchemy import Engine

    from infra.settings import DatabaseSettings
    from tasks.domain import Spec
    from tasks.manifest.table import JobTable
    from tasks.results.audit import AuditReport

SHARD_JOBS = 100
_STORE = StoreSettings()


@dataclass(frozen=True, slots=True)
class Dataset:
    """A manifest, the database of its results, and what is asked; each step has its own process and connection."""

    manifest: str
    settings: DatabaseSettings
    spec: Spec

    @property
    def scope(self) -> Scope:
        return Scope(dataset=DATASET, spec_id=self.spec.spec_id)

    @property
    def has_questions(self) -> bool:
        return not isinstance(self.spec, DescribeSpec)

    def plan(self, plan_uri: str) -> Plan:
        """Read and check the manifest, look up finished jobs, write the shards and open the plan."""
        engine = connect(self.settings)
        with open_jobs(self.manifest, ObjectStore(_STORE), questions=self.has_questions) as jobs:
            refresh_annotations(engine, self.scope, jobs=jobs)
            kind = "classify" if self.has_questions else "describe"
            return self._open_plan(self._pending(jobs, engine), plan_uri, engine, kind=kind)

    def backfill(self, ids: str, plan_uri: str) -> Plan:
        """Read ids from a file, select their pending jobs, write the shards and open the plan."""
        engine, named = connect(self.settings), Path(ids).read_text().splitlines()
        only = pl.Series("job_id", named)
        with open_jobs(self.manifest, ObjectStore(_STORE), only=only, questions=self.has_questions) as jobs:
            chosen = choose_jobs(engine, self.scope, Selection(), jobs=jobs, named=named).jobs
            wanted = self._pending(chosen, engine, retry_failures=True)
            return self._open_plan(wanted, plan_uri, engine, kind="backfill")

    def audit(self) -> AuditReport:
        with open_manifest(self.manifest, ObjectStore(_STORE)) as files:
            jobs = read_unchecked_batches(files, questions=self.has_questions)
            return audit_jobs(connect(self.settings), self.scope, jobs=jobs)

    def pending_set(self, ids: str) -> tuple[int, int]:
        """Return the number of named jobs, and of those that a backfill has to answer."""
        named = pl.Series("job_id", Path(ids).read_text().splitlines())
        with open_jobs(self.manifest, ObjectStore(_STORE), only=named, questions=self.has_questions) as jobs:
            return len(jobs), len(self._pending(jobs, connect(self.settings), retry_failures=True))

    def catalogue(self) -> int:
        """Read what a search knows of all described videos, as when it opens the index; return their number."""
        known = DatabaseCatalogue(connect(self.settings))
        return sum(len(known.files(model)) for model in known.models())

    def _pending(self, jobs: JobTable, engine: Engine, *, retry_failures: bool = False) -> JobTable:
        return pending_jobs(
            engine, self.scope, jobs=jobs, fingerprints_of=fingerprints_of, retry_failures=retry_failures
        )

    def _open_plan(self, wanted: JobTable, plan_uri: str, engine: Engine, *, kind: str) -> Plan:
        if isinstance(self.spec, RunSpec):
            scoring = self.spec.choice_scoring
            find_ambiguous_jobs(wanted.parts(), scoring=scoring, encode=lambda text: list(text.encode()))
        with PlanWriter(ObjectStore(_STORE), plan_uri, seal=_STORE.seal) as writer:
            for shards in split_into_shards(wanted.parts(), target_jobs=SHARD_JOBS):
                writer.add(shards.rows, shards.sizes)
        made = Plan(
            plan_id=uuid4(),
            run_id=RUN.run_id,
            dataset=DATASET,
            spec_id=self.spec.spec_id,
            manifest_uri=self.manifest,
            manifest_fingerprint="",
            kind=kind,
            shared=kind != "backfill",
            plan_uri=plan_uri,
            shards=len(writer.jobs),
            jobs=sum(writer.jobs),
        )
        open_plan(engine, made, writer.jobs)
        return made


def write_in_parallel(settings: DatabaseSettings, *, shards: int, processes: int, threads: int) -> float:
    """Write so many shards by each process; return rows per second, from the first start to the last end."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(processes, mp_context=context) as pool:
        write = partial(_write, start=manager.Barrier(processes), threads=threads, shards=shards, settings=settings)
        times = list(pool.map(write, range(processes)))
    seconds = max(ended_s for _, ended_s in times) - min(began_s for began_s, _ in times)
    return processes * shards * SHARD_JOBS / seconds


def _write(
    number: int, start: Barrier, *, threads: int, shards: int, settings: DatabaseSettings
) -> tuple[float, float]:
    """Write shards from several threads, as a flow does, once all processes are ready; return when, by the clock."""
    writer = ShardWriter(connect(settings), RUN)
    outcomes = [_outcomes(number, shard) for shard in range(shards)]
    with writer.engine.connect(), ThreadPoolExecutor(threads) as pool:
        start.wait()
        began_s = time.time()
        list(pool.map(lambda each: writer.write(*each), outcomes))
    return began_s, time.time()


def _outcomes(writer: int, shard: int) -> tuple[list[JobResult], list[Failure]]:
    """Return the rows of a hundred jobs, one of which failed."""
    jobs = [_job(f"written-{writer}-{shard:07}-{number:03}") for number in range(SHARD_JOBS)]
    results = [_result(job, shard) for job in jobs[1:]]
    message = "No frame of the video can be decoded."
    failure = Failure(job=jobs[0], stage=Stage.DECODE, code="no_keyframes", message=message, shard_index=shard)
    return results, [failure]


def _job(clip: str) -> Job:
    choices = ("picks it up", "puts it down", "throws it", "none of these")
    prompt = "What does the person in the video do with the object?"
    job = Job(job_id=clip, video_uri=f"s3://footage/{clip}.mp4", prompt=prompt, choices=choices, task="action")
    _ = job.digest  # computed during planning
    return job


def _result(job: Job, shard: int) -> JobResult:
    answer = Answer(
        choice_index=0,
        probabilities=(0.513671875, 0.25, 0.1611328125, 0.0751953125),
        prompt_tokens=1071,
        cached_tokens=1024,
        preprocess_ms=9.481,
        inference_ms=10.733,
    )
    return JobResult(
        job=job,
        answer=answer,
        provenance=FrameProvenance(
            fingerprint="etag-9e107d9d372bb6826bd81d3542a419d6-1234567",
            decode_method="index",
            keyframes_in_file=30,
            frames_used=16,
            fetch_ms=1.5,
            decode_ms=30.517,
            cache_write_ms=2.493,
            cache_read_ms=1.271,
        ),
        shard_index=shard,
    )
