"""Measurement of every step at one number of jobs, in a temporary database."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql
from pydantic import SecretStr
from sqlalchemy.engine import make_url

from benchmarks.scale import steps
from benchmarks.scale.answering import answer
from benchmarks.scale.parallel import (
    SHARD_JOBS,
    lease_shards,
    run_in_parallel,
    write_descriptions,
    write_results,
)
from benchmarks.scale.process import run_in_process
from benchmarks.scale.synthetic import begin_run, fill_results, write_ids, write_manifest
from infra.settings import DatabaseSettings, StoreSettings
from reelabel.sources.object_store import ObjectStore
from sql.migrate import upgrade
from tasks.manifest.table import open_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.scale.parallel import ProcessResult
    from tasks.plans.plan import Plan
    from tasks.results.audit import AuditReport

_WRITING_PROCESSES, _WRITING_THREADS = 4, 8
_WRITTEN_ROWS = 400_000
_ROWS_A_VIDEO = 4  # its own, and those of its chunks
_LEASING_THREADS, _LEASING_PROCESSES = 32, 2
NAMED_EVERY = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRow:
    """Cost of each step at one number of jobs.

    Attributes:
        rows: Jobs of the manifest.
        shards: Shards planned.
        plan_s: Seconds from the manifest to the plan's files, with an empty database.
        plan_peak_bytes: Peak memory of the planning process.
        leased_per_s: Shards per second leased by 32 threads, until none was left.
        audit_s: Seconds of an audit of the manifest's Parquet file.
        audit_peak_bytes: Peak memory of the auditing process, without the database server.
        named: Jobs of a backfill that names every tenth job.
        pending_s: Seconds to find the pending jobs among them.
        pending_peak_bytes: Peak memory of that process.
        backfill_s: Seconds from a file of their ids to the plan of the backfill.
        backfill_peak_bytes: Peak memory of that process.
        written_per_s: Rows per second written by several writers, shard by shard, into the filled tables.
        described_per_s: Described videos of three chunks each per second, written likewise.
    """

    rows: int
    shards: int
    plan_s: float
    plan_peak_bytes: int
    leased_per_s: float
    audit_s: float
    audit_peak_bytes: int
    named: int
    pending_s: float
    pending_peak_bytes: int
    backfill_s: float
    backfill_peak_bytes: int
    written_per_s: float
    described_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VideosRow:
    """Cost of planning and answering a manifest, by the number of its videos.

    Attributes:
        rows: Jobs of the manifest.
        videos: Videos that they are about.
        shards: Shards planned.
        plan_s: Seconds from the manifest to the plan's files.
        plan_peak_bytes: Peak memory of the planning process, which has no children.
        answer_s: Seconds to answer every job with an instant answer, and to write the rows.
        answer_peak_bytes: Peak memory of the answering process, which has no children.
    """

    rows: int
    videos: int
    shards: int
    plan_s: float
    plan_peak_bytes: int
    answer_s: float
    answer_peak_bytes: int


def measure_videos(
    rows: int, *, videos: int, settings: DatabaseSettings, on_progress: Callable[[str], None]
) -> VideosRow:
    """Plan and answer a manifest with so many jobs, on so many videos.

    Raises:
        AssertionError: A job was not answered.
    """
    with TemporaryDirectory(prefix="reelabel-scale-") as folder, temporary_database(settings) as own:
        manifest = Path(folder) / "scale.parquet"
        on_progress("writing a manifest")
        write_manifest(manifest, rows, per_video=-(-rows // videos))
        begin_run(own)
        on_progress("planning")
        plan = run_in_process(steps.plan, str(manifest), f"{folder}/plan", own)
        on_progress("answering")
        answered = run_in_process(answer, plan.value, own)
        assert answered.value == rows
        assert run_in_process(steps.audit, str(manifest), own).value.is_reconciled
        return VideosRow(
            rows=rows,
            videos=videos,
            shards=plan.value.shards,
            plan_s=plan.seconds,
            plan_peak_bytes=plan.peak_bytes,
            answer_s=answered.seconds,
            answer_peak_bytes=answered.peak_bytes,
        )


def measure_scale(rows: int, settings: DatabaseSettings, *, on_progress: Callable[[str], None]) -> ScaleRow:
    """Measure each step once.

    Args:
        rows: Jobs of the manifest.
        settings: A Postgres server in which databases may be created.
        on_progress: Called with a description of each step.

    Raises:
        AssertionError: A step returned a wrong result.
    """
    with TemporaryDirectory(prefix="reelabel-scale-") as folder, temporary_database(settings) as own:
        manifest = Path(folder) / "scale.parquet"
        on_progress("writing a manifest")
        write_manifest(manifest, rows)
        begin_run(own)
        on_progress("planning")
        plan = run_in_process(steps.plan, str(manifest), f"{folder}/plan", own)
        assert plan.value.jobs == rows
        on_progress("leasing shards")
        leased_per_s = _lease(plan.value, own)
        on_progress("filling the database")
        with open_jobs(str(manifest), ObjectStore(StoreSettings())) as jobs:
            expected = fill_results(own, jobs)
        on_progress("auditing")
        audit = run_in_process(steps.audit, str(manifest), own)
        check_audit(audit.value, expected)
        on_progress("finding the pending jobs of a backfill")
        write_ids(ids := Path(folder) / "ids.txt", manifest, every=NAMED_EVERY)
        pending = run_in_process(steps.pending_set, str(manifest), str(ids), own)
        on_progress("planning a backfill")
        backfill = run_in_process(steps.backfill, str(manifest), str(ids), f"{folder}/backfill", own)
        assert backfill.value.jobs == pending.value[1]
        on_progress("writing results")
        shards = min(rows, _WRITTEN_ROWS) // SHARD_JOBS // _WRITING_PROCESSES
        written_per_s = _write(write_results, shards, own)
        on_progress("writing descriptions")
        described_per_s = _write(write_descriptions, max(1, shards // _ROWS_A_VIDEO), own)
        return ScaleRow(
            rows=rows,
            shards=plan.value.shards,
            plan_s=plan.seconds,
            plan_peak_bytes=plan.peak_bytes,
            leased_per_s=leased_per_s,
            audit_s=audit.seconds,
            audit_peak_bytes=audit.peak_bytes,
            named=pending.value[0],
            pending_s=pending.seconds,
            pending_peak_bytes=pending.peak_bytes,
            backfill_s=backfill.seconds,
            backfill_peak_bytes=backfill.peak_bytes,
            written_per_s=written_per_s,
            described_per_s=described_per_s,
        )


def _lease(plan: Plan, settings: DatabaseSettings) -> float:
    worker = partial(
        lease_shards,
        threads=_LEASING_THREADS // _LEASING_PROCESSES,
        plan_id=plan.plan_id,
        settings=settings,
    )
    seconds, results = run_in_parallel(worker, processes=_LEASING_PROCESSES)
    leased = sorted(index for each in results for index in each.done)
    assert leased == list(range(plan.shards)), "A shard was leased twice, or never."
    return plan.shards / seconds


def _write(write: Callable[..., ProcessResult], shards: int, settings: DatabaseSettings) -> float:
    """Write shards by several processes; return rows per second."""
    writer = partial(write, threads=_WRITING_THREADS, shards=shards, settings=settings)
    seconds, results = run_in_parallel(writer, processes=_WRITING_PROCESSES)
    rows: int = sum(each.done for each in results)
    return rows / seconds


def check_audit(report: AuditReport, expected: dict[str, int]) -> None:
    """Check that an audit has found what there is.

    Raises:
        AssertionError: It has not.
    """
    found = {name: getattr(report, name) for name in expected}
    assert found == expected, f"The audit found {found}, expected {expected}."


@contextmanager
def temporary_database(settings: DatabaseSettings) -> Iterator[DatabaseSettings]:
    """Create a database with the schema, and drop it afterwards."""
    owner_url = settings.owner_url or settings.url
    assert owner_url is not None
    url, name = make_url(owner_url.get_secret_value()), f"bench_{secrets.token_hex(4)}"
    own = url.set(database=name).render_as_string(hide_password=False)
    with psycopg.connect(owner_url.get_secret_value(), autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            upgrade(own)
            yield settings.model_copy(update={"url": SecretStr(own)})
        finally:
            server.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))
