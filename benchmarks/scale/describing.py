"""Measurement of every step of runs that describe, at one number of videos, in a temporary database."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.scale import steps
from benchmarks.scale.measure import NAMED_EVERY, check_audit, temporary_database
from benchmarks.scale.process import run_in_process
from benchmarks.scale.synthetic import (
    DESCRIBE_SPEC,
    begin_run,
    count_bytes,
    fill_descriptions,
    write_ids,
    write_videos,
)
from infra.settings import StoreSettings
from reelabel.sources.object_store import ObjectStore
from tasks.manifest.table import open_jobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.scale.process import StepResult
    from infra.settings import DatabaseSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRow:
    """Cost of planning at one number of videos; see `ScaleRow` for what it shares.

    Attributes:
        videos: Videos of the manifest, one job each.
        shards: Shards planned.
        plan_files: Files of the plan on the store.
        plan_file_bytes: Their size.
    """

    videos: int
    shards: int
    plan_files: int
    plan_file_bytes: int
    plan_s: float
    plan_peak_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptionsRow(PlannedRow):
    """Cost of each step at one number of videos; see `ScaleRow` for those that it shares.

    Attributes:
        table_bytes: Size of the rows of descriptions and of their chunks, one a video, in Postgres with their indexes.
        catalogue_s: Seconds to read what a search knows of all described videos.
        catalogue_peak_bytes: Peak memory of that process.
    """

    table_bytes: int
    audit_s: float
    audit_peak_bytes: int
    pending_s: float
    pending_peak_bytes: int
    backfill_s: float
    backfill_peak_bytes: int
    catalogue_s: float
    catalogue_peak_bytes: int


def measure_descriptions(
    videos: int, settings: DatabaseSettings, *, on_progress: Callable[[str], None]
) -> DescriptionsRow:
    """Measure each step once.

    Args:
        videos: Videos of the manifest.
        settings: A Postgres server in which databases may be created.
        on_progress: Called with a description of each step.

    Raises:
        AssertionError: A step returned a wrong result.
    """
    with TemporaryDirectory(prefix="reelabel-scale-") as folder, temporary_database(settings) as own:
        manifest, ids = Path(folder) / "videos.parquet", Path(folder) / "ids.txt"
        step = partial(_step, own)
        planned = _plan(manifest, videos, own, on_progress)
        on_progress("filling the database")
        with open_jobs(str(manifest), ObjectStore(StoreSettings()), questions=False) as jobs:
            expected = fill_descriptions(own, jobs)
        on_progress("auditing")
        audit = step(steps.audit, manifest)
        check_audit(audit.value, expected)
        on_progress("finding the pending jobs of a backfill")
        write_ids(ids, manifest, every=NAMED_EVERY)
        pending = step(steps.pending_set, manifest, ids)
        on_progress("planning a backfill")
        backfill = step(steps.backfill, manifest, ids, Path(folder) / "backfill")
        assert backfill.value.jobs == pending.value[1]
        on_progress("reading what a search knows")
        described = videos - expected["missing"] - expected["failures"]
        catalogue = run_in_process(steps.catalogue, own)
        assert catalogue.value == described, (catalogue.value, described)
        return DescriptionsRow(
            **asdict(planned),
            table_bytes=count_bytes(own),
            audit_s=audit.seconds,
            audit_peak_bytes=audit.peak_bytes,
            pending_s=pending.seconds,
            pending_peak_bytes=pending.peak_bytes,
            backfill_s=backfill.seconds,
            backfill_peak_bytes=backfill.peak_bytes,
            catalogue_s=catalogue.seconds,
            catalogue_peak_bytes=catalogue.peak_bytes,
        )


def measure_planning(videos: int, settings: DatabaseSettings, *, on_progress: Callable[[str], None]) -> PlannedRow:
    """Plan a manifest of so many videos once; as `measure_descriptions`."""
    with TemporaryDirectory(prefix="reelabel-scale-") as folder, temporary_database(settings) as own:
        return _plan(Path(folder) / "videos.parquet", videos, own, on_progress)


def _plan(manifest: Path, videos: int, own: DatabaseSettings, on_progress: Callable[[str], None]) -> PlannedRow:
    on_progress("writing a manifest")
    write_videos(manifest, videos)
    begin_run(own, DESCRIBE_SPEC)
    on_progress("planning")
    folder = manifest.with_name("plan")
    plan = _step(own, steps.plan, manifest, folder)
    assert plan.value.jobs == videos
    files = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return PlannedRow(
        videos=videos,
        shards=plan.value.shards,
        plan_files=len(files),
        plan_file_bytes=sum(files),
        plan_s=plan.seconds,
        plan_peak_bytes=plan.peak_bytes,
    )


def _step(settings: DatabaseSettings, step: Callable[..., object], *paths: Path) -> StepResult:
    return run_in_process(step, *map(str, paths), settings, DESCRIBE_SPEC)
