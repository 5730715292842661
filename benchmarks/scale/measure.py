"""Measures every step of a run for some number of jobs, each in a separate process, in a temporary database."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from pydantic import SecretStr
from sqlalchemy.engine import make_url

from benchmarks.harness import MIB, Column, Table, own_services, progress, run_in_process
from benchmarks.scale import steps
from benchmarks.scale.answering import answer
from benchmarks.scale.synthetic import (
    DESCRIBE_SPEC,
    SPEC,
    begin_run,
    count_bytes,
    fill_descriptions,
    fill_results,
    write_ids,
    write_manifest,
    write_videos,
)
from infra.settings import StoreSettings
from reelabel.sources.object_store import ObjectStore
from sql.migrate import upgrade
from tasks.manifest.table import open_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from infra.settings import DatabaseSettings
    from tasks.domain import Spec

    Measure = Callable[..., dict[str, Any]]

_WRITING_PROCESSES, _WRITING_THREADS = 4, 8
_WRITTEN_ROWS = 400_000
_NAMED_EVERY = 10


def _step(title: str, name: str) -> tuple[Column, Column]:
    """Return the columns of a step's seconds and of its peak memory, without the database server's."""
    peak = Column(f"{title}, peak MiB", lambda row: row[f"{name}_peak_bytes"] / MIB, ",.0f")
    return Column(f"{title}, s", f"{name}_s", ",.1f"), peak


_SHARDS = Column("shards", "shards", ",")
_BACKFILLS = (*_step("pending of a tenth", "pending"), *_step("backfill of a tenth", "backfill"))
_BY_JOBS = (
    Column("", lambda row: f"{row['rows']:,} jobs"),
    *_step("plan", "plan"),
    _SHARDS,
    *_step("audit", "audit"),
    *_BACKFILLS,
    Column("results written per second", "written_per_s", ",.0f"),
)
_VIDEOS = Column("", lambda row: f"{row['videos']:,} videos")
_BY_VIDEOS = (_VIDEOS, _SHARDS, *_step("plan", "plan"), *_step("answer", "answer"))
_BY_PLANS = (
    _VIDEOS,
    *_step("plan", "plan"),
    _SHARDS,
    Column("files of the plan", "plan_files", ","),
    Column("their MiB", lambda row: row["plan_file_bytes"] / MIB, ",.0f"),
)
_BY_DESCRIPTIONS = (
    *_BY_PLANS,
    Column("rows in Postgres, MiB", lambda row: row["table_bytes"] / MIB, ",.0f"),
    *_step("audit", "audit"),
    *_BACKFILLS,
    *_step("catalogue of a search", "catalogue"),
)


def scale(counts: Sequence[int]) -> list[Table]:
    return _tables("By the number of jobs in the manifest", _BY_JOBS, [(count, measure_scale) for count in counts])


def scale_of_videos(count: int, videos: Sequence[int]) -> list[Table]:
    """Plan and answer so many jobs on each number of videos."""
    measures = [(count, partial(measure_videos, videos=number)) for number in videos]
    return _tables(f"{count:,} jobs, by the number of videos", _BY_VIDEOS, measures)


def scale_of_descriptions(counts: Sequence[int], *, plan_only: bool) -> list[Table]:
    """Measure each number of videos to describe, or only how they are planned."""
    measure, columns = (measure_planning, _BY_PLANS) if plan_only else (measure_descriptions, _BY_DESCRIPTIONS)
    return _tables("By the number of videos to describe", columns, [(count, measure) for count in counts])


def _tables(title: str, columns: Sequence[Column], measures: Sequence[tuple[int, Measure]]) -> list[Table]:
    with own_services("postgres") as settings, progress() as show:
        rows = [
            measure(count, settings=settings.database, on_progress=lambda step, count=count: show(f"{count:,}: {step}"))
            for count, measure in measures
        ]
    return [Table(title, rows, columns, across=True)]


def _timed(name: str, step: Callable[..., Any], *arguments: object) -> tuple[Any, dict[str, Any]]:
    """Run a step in a process; return its value, and its figures under a name."""
    done = run_in_process(step, *arguments)
    return done.value, {f"{name}_s": done.seconds, f"{name}_peak_bytes": done.peak_bytes}


def measure_scale(rows: int, *, settings: DatabaseSettings, on_progress: Callable[[str], None]) -> dict[str, Any]:
    """Measure each step once, on a server in which databases may be created."""
    with _database(settings) as (folder, own):
        manifest = folder / "scale.parquet"
        on_progress("writing a manifest")
        write_manifest(manifest, rows)
        begin_run(own)
        on_progress("planning")
        plan, planned = _timed("plan", steps.plan, str(manifest), f"{folder}/plan", own)
        assert plan.jobs == rows
        figures = {"rows": rows, "shards": plan.shards, **planned}
        on_progress("filling the database")
        with open_jobs(str(manifest), ObjectStore(StoreSettings())) as jobs:
            expected = fill_results(own, jobs)
        figures |= _read_back(manifest, own, SPEC, expected, on_progress)
        on_progress("writing results")
        shards = max(1, min(rows, _WRITTEN_ROWS) // steps.SHARD_JOBS // _WRITING_PROCESSES)
        figures["written_per_s"] = steps.write_in_parallel(
            own, shards=shards, processes=_WRITING_PROCESSES, threads=_WRITING_THREADS
        )
        return figures


def measure_videos(
    rows: int, *, videos: int, settings: DatabaseSettings, on_progress: Callable[[str], None]
) -> dict[str, Any]:
    """Plan and answer a manifest with so many jobs, on so many videos; neither process has children."""
    with _database(settings) as (folder, own):
        manifest = folder / "scale.parquet"
        on_progress("writing a manifest")
        write_manifest(manifest, rows, per_video=-(-rows // videos))
        begin_run(own)
        on_progress("planning")
        plan, planned = _timed("plan", steps.plan, str(manifest), f"{folder}/plan", own)
        on_progress("answering")
        answered, answering = _timed("answer", answer, plan, own)
        assert answered == rows
        assert run_in_process(steps.audit, str(manifest), own).value.is_reconciled
        return {"rows": rows, "videos": videos, "shards": plan.shards, **planned, **answering}


def measure_descriptions(
    videos: int, *, settings: DatabaseSettings, on_progress: Callable[[str], None]
) -> dict[str, Any]:
    """Measure each step of runs that describe so many videos once; as `measure_scale`."""
    with _database(settings) as (folder, own):
        manifest = folder / "videos.parquet"
        figures = _plan_videos(manifest, videos, own, on_progress)
        on_progress("filling the database")
        with open_jobs(str(manifest), ObjectStore(StoreSettings()), questions=False) as jobs:
            expected = fill_descriptions(own, jobs)
        figures |= _read_back(manifest, own, DESCRIBE_SPEC, expected, on_progress)
        on_progress("reading what a search knows")
        described = videos - expected["missing"] - expected["failures"]
        known, reading = _timed("catalogue", steps.catalogue, own)
        assert known == described, (known, described)
        return figures | {"table_bytes": count_bytes(own), **reading}


def measure_planning(videos: int, *, settings: DatabaseSettings, on_progress: Callable[[str], None]) -> dict[str, Any]:
    """Plan a manifest of so many videos once; as `measure_scale`."""
    with _database(settings) as (folder, own):
        return _plan_videos(folder / "videos.parquet", videos, own, on_progress)


def _plan_videos(
    manifest: Path, videos: int, own: DatabaseSettings, on_progress: Callable[[str], None]
) -> dict[str, Any]:
    on_progress("writing a manifest")
    write_videos(manifest, videos)
    begin_run(own, DESCRIBE_SPEC)
    on_progress("planning")
    folder = manifest.with_name("plan")
    plan, planned = _timed("plan", steps.plan, str(manifest), str(folder), own, DESCRIBE_SPEC)
    assert plan.jobs == videos
    files = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return {
        "videos": videos,
        "shards": plan.shards,
        "plan_files": len(files),
        "plan_file_bytes": sum(files),
        **planned,
    }


def _read_back(
    manifest: Path, own: DatabaseSettings, spec: Spec, expected: dict[str, int], on_progress: Callable[[str], None]
) -> dict[str, Any]:
    """Audit what is in the database, find what a backfill of every tenth job has to answer, and plan it."""
    on_progress("auditing")
    report, auditing = _timed("audit", steps.audit, str(manifest), own, spec)
    found = {name: getattr(report, name) for name in expected}
    assert found == expected, f"The audit found {found}, expected {expected}."
    on_progress("finding the pending jobs of a backfill")
    ids = manifest.with_name("ids.txt")
    write_ids(ids, manifest, every=_NAMED_EVERY)
    (named, pending), finding = _timed("pending", steps.pending_set, str(manifest), str(ids), own, spec)
    on_progress("planning a backfill")
    folder = str(manifest.with_name("backfill"))
    plan, planning = _timed("backfill", steps.backfill, str(manifest), str(ids), folder, own, spec)
    assert plan.jobs == pending
    return {"named": named, **auditing, **finding, **planning}


@contextmanager
def _database(settings: DatabaseSettings) -> Iterator[tuple[Path, DatabaseSettings]]:
    """Create a folder, and a database with the schema; drop both afterwards."""
    owner_url = settings.owner_url or settings.url
    assert owner_url is not None
    url, name = make_url(owner_url.get_secret_value()), f"bench_{secrets.token_hex(4)}"
    own = url.set(database=name).render_as_string(hide_password=False)
    with (
        TemporaryDirectory(prefix="reelabel-scale-") as folder,
        psycopg.connect(owner_url.get_secret_value(), autocommit=True) as server,
    ):
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            upgrade(own)
            yield Path(folder), settings.model_copy(update={"url": SecretStr(own)})
        finally:
            server.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))
