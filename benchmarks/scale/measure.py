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
from benchmarks.scale.steps import Dataset
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
    from tasks.manifest.table import JobTable
    from tasks.plans.plan import Plan

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
    measure = partial(measure_descriptions, plan_only=plan_only)
    columns = _BY_PLANS if plan_only else _BY_DESCRIPTIONS
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
    """Measure each step once, on a server in which databases may be created; a wrong result is an error."""
    with _database(settings, SPEC) as data:
        write_manifest(Path(data.manifest), rows)
        _, figures = _plan(data, rows, on_progress)
        figures |= _read_back(data, fill_results, on_progress)
        on_progress("writing results")
        shards = max(1, min(rows, _WRITTEN_ROWS) // steps.SHARD_JOBS // _WRITING_PROCESSES)
        written_per_s = steps.write_in_parallel(
            data.settings, shards=shards, processes=_WRITING_PROCESSES, threads=_WRITING_THREADS
        )
        return figures | {"rows": rows, "written_per_s": written_per_s}


def measure_videos(
    rows: int, *, videos: int, settings: DatabaseSettings, on_progress: Callable[[str], None]
) -> dict[str, Any]:
    """Plan and answer a manifest with so many jobs, on so many videos; neither process has children."""
    with _database(settings, SPEC) as data:
        per_video = -(-rows // videos)
        write_manifest(Path(data.manifest), rows, per_video=per_video)
        plan, figures = _plan(data, rows, on_progress)
        on_progress("answering")
        answered, answering = _timed("answer", answer, plan, data.settings)
        assert answered == rows
        assert run_in_process(data.audit).value.is_reconciled
        return figures | answering | {"rows": rows, "videos": -(-rows // per_video)}  # as many as fit, evenly


def measure_descriptions(
    videos: int, *, plan_only: bool = False, settings: DatabaseSettings, on_progress: Callable[[str], None]
) -> dict[str, Any]:
    """Measure each step of runs that describe so many videos once, or only planning; as `measure_scale`."""
    with _database(settings, DESCRIBE_SPEC) as data:
        write_videos(Path(data.manifest), videos)
        _, figures = _plan(data, videos, on_progress)
        figures["videos"] = videos
        if plan_only:
            return figures
        figures |= _read_back(data, fill_descriptions, on_progress)
        on_progress("reading what a search knows")
        known, reading = _timed("catalogue", data.catalogue)
        assert known == figures["finished"], (known, figures["finished"])
        return figures | {"table_bytes": count_bytes(data.settings), **reading}


def _plan(data: Dataset, jobs: int, on_progress: Callable[[str], None]) -> tuple[Plan, dict[str, Any]]:
    begin_run(data.settings, data.spec)
    on_progress("planning")
    folder = Path(data.manifest).with_name("plan")
    plan, figures = _timed("plan", data.plan, str(folder))
    assert plan.jobs == jobs
    files = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return plan, figures | {"shards": plan.shards, "plan_files": len(files), "plan_file_bytes": sum(files)}


def _read_back(
    data: Dataset,
    fill: Callable[[DatabaseSettings, JobTable], dict[str, int]],
    on_progress: Callable[[str], None],
) -> dict[str, Any]:
    """Fill the database, audit it, find what a backfill of every tenth job has to answer, and plan that."""
    on_progress("filling the database")
    with open_jobs(data.manifest, ObjectStore(StoreSettings()), questions=data.has_questions) as jobs:
        expected, finished = fill(data.settings, jobs), jobs.rows
    on_progress("auditing")
    report, auditing = _timed("audit", data.audit)
    found = {name: getattr(report, name) for name in expected}
    assert found == expected, f"The audit found {found}, expected {expected}."
    on_progress("finding the pending jobs of a backfill")
    ids = Path(data.manifest).with_name("ids.txt")
    write_ids(ids, Path(data.manifest), every=_NAMED_EVERY)
    (named, pending), finding = _timed("pending", data.pending_set, str(ids))
    on_progress("planning a backfill")
    plan, planning = _timed("backfill", data.backfill, str(ids), str(ids.with_name("backfill")))
    assert plan.jobs == pending
    finished -= expected["missing"] + expected["failures"]
    return {"named": named, "finished": finished, **auditing, **finding, **planning}


@contextmanager
def _database(settings: DatabaseSettings, spec: Spec) -> Iterator[Dataset]:
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
            yield Dataset(f"{folder}/manifest.parquet", settings.model_copy(update={"url": SecretStr(own)}), spec)
        finally:
            server.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))
