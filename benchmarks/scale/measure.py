"""Every step at one number of rows, in a database of its own."""

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
from benchmarks.scale.child import in_child
from benchmarks.scale.crowd import SHARD_JOBS, claim_shards, crowd, write_results
from benchmarks.scale.synthetic import begin_run, fill_results, write_ids, write_manifest
from infra.objects import ObjectStore
from infra.settings import DatabaseSettings, StoreSettings
from sql.migrate import upgrade
from tasks.manifest.table import open_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tasks.plans.plan import Plan
    from tasks.results.audit import AuditReport

_WRITING_PROCESSES, _WRITERS_EACH = 4, 8
_WRITTEN_ROWS = 400_000
_CLAIMERS, _CLAIMING_PROCESSES, _CLAIMED_AT_ONCE = 32, 2, 8
_NAMED_EVERY = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRow:
    """What so many jobs take.

    Attributes:
        rows: Jobs of the manifest.
        shards: Shards planned.
        plan_s: Seconds from the manifest to the plan's files, on a database that has no row of it.
        plan_peak_bytes: Most memory of the process that planned.
        claimed_per_s: Shards a second that 32 claimers got, eight at a time, until all were given out.
        audit_s: Seconds of an audit from the manifest's Parquet.
        audit_peak_bytes: Memory, as above; the server's own is its own.
        named: Jobs of a backfill that names every tenth.
        pending_s: Seconds to find which of them are to be asked.
        pending_peak_bytes: Memory, as above.
        backfill_s: Seconds from their ids in a file to the backfill's plan, of which work can begin.
        backfill_peak_bytes: Memory, as above.
        written_per_s: Rows a second that several writers wrote, shard by shard, beside those that stand.
    """

    rows: int
    shards: int
    plan_s: float
    plan_peak_bytes: int
    claimed_per_s: float
    audit_s: float
    audit_peak_bytes: int
    named: int
    pending_s: float
    pending_peak_bytes: int
    backfill_s: float
    backfill_peak_bytes: int
    written_per_s: float


def measure_scale(rows: int, settings: DatabaseSettings, *, say: Callable[[str], None]) -> ScaleRow:
    """Measure each step once.

    Args:
        rows: Jobs of the manifest.
        settings: A Postgres in which databases may be made.
        say: Told what is being done.

    Raises:
        AssertionError: A step found what is not so.
    """
    with TemporaryDirectory(prefix="reelabel-scale-") as folder, _database(settings) as own:
        manifest = Path(folder) / "scale.parquet"
        say("writing a manifest")
        write_manifest(manifest, rows)
        begin_run(own)
        say("planning")
        plan = in_child(steps.plan, str(manifest), f"{folder}/plan", own)
        assert plan.found.jobs == rows
        say("handing shards out")
        claimed_per_s = _claim(plan.found, own)
        say("filling the database")
        with open_jobs(str(manifest), ObjectStore(StoreSettings())) as jobs:
            expected = fill_results(own, jobs)
        say("auditing")
        audit = in_child(steps.audit, str(manifest), own)
        _check(audit.found, expected)
        say("finding what a backfill has to ask")
        write_ids(ids := Path(folder) / "ids.txt", manifest, every=_NAMED_EVERY)
        pending = in_child(steps.pending_set, str(manifest), str(ids), own)
        say("planning a backfill")
        backfill = in_child(steps.backfill, str(manifest), str(ids), f"{folder}/backfill", own)
        assert backfill.found.jobs == pending.found[1]
        say("writing results")
        shards = min(rows, _WRITTEN_ROWS) // SHARD_JOBS // _WRITING_PROCESSES
        writer = partial(write_results, threads=_WRITERS_EACH, shards=shards, settings=own)
        write_s, turns = crowd(writer, many=_WRITING_PROCESSES)
        return ScaleRow(
            rows=rows,
            shards=plan.found.shards,
            plan_s=plan.seconds,
            plan_peak_bytes=plan.peak_bytes,
            claimed_per_s=claimed_per_s,
            audit_s=audit.seconds,
            audit_peak_bytes=audit.peak_bytes,
            named=pending.found[0],
            pending_s=pending.seconds,
            pending_peak_bytes=pending.peak_bytes,
            backfill_s=backfill.seconds,
            backfill_peak_bytes=backfill.peak_bytes,
            written_per_s=sum(turn.done for turn in turns) / write_s,
        )


def _claim(plan: Plan, settings: DatabaseSettings) -> float:
    claimer = partial(
        claim_shards,
        threads=_CLAIMERS // _CLAIMING_PROCESSES,
        plan_id=plan.plan_id,
        at_once=_CLAIMED_AT_ONCE,
        settings=settings,
    )
    seconds, turns = crowd(claimer, many=_CLAIMING_PROCESSES)
    taken = sorted(index for turn in turns for index in turn.done)
    assert taken == list(range(plan.shards)), "A shard was given out twice, or never."
    return plan.shards / seconds


def _check(report: AuditReport, expected: dict[str, int]) -> None:
    found = {name: getattr(report, name) for name in expected}
    assert found == expected, f"The audit found {found} of {expected}."


@contextmanager
def _database(settings: DatabaseSettings) -> Iterator[DatabaseSettings]:
    """Make an empty database with the schema, and drop it in the end."""
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
