"""The measured steps of runs and commands, without videos."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import polars as pl

from benchmarks.scale.synthetic import DATASET, RUN, SPEC, fingerprints_of
from infra.database.connect import connect
from infra.settings import StoreSettings
from reelabel.sources.object_store import ObjectStore
from tasks.database.scope import Scope
from tasks.domain import DescribeSpec, RunSpec
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

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from infra.settings import DatabaseSettings
    from tasks.domain import Spec
    from tasks.manifest.table import JobTable
    from tasks.results.audit import AuditReport

_OBJECTS = StoreSettings()


def plan(manifest: str, plan_uri: str, settings: DatabaseSettings, spec: Spec = SPEC) -> Plan:
    """Read and check a manifest, look up finished jobs, write the shards and open the plan."""
    engine = connect(settings)
    with open_jobs(manifest, ObjectStore(_OBJECTS), questions=_has_questions(spec)) as jobs:
        refresh_annotations(engine, _scope(spec), jobs=jobs)
        kind = "classify" if _has_questions(spec) else "describe"
        return _open_plan(_pending(jobs, engine, spec), manifest, plan_uri, engine, spec, kind=kind)


def backfill(manifest: str, ids: str, plan_uri: str, settings: DatabaseSettings, spec: Spec = SPEC) -> Plan:
    """Read ids from a file, select their pending jobs, write the shards and open the plan."""
    named = Path(ids).read_text().splitlines()
    engine = connect(settings)
    only = pl.Series("job_id", named)
    with open_jobs(manifest, ObjectStore(_OBJECTS), only=only, questions=_has_questions(spec)) as jobs:
        chosen = choose_jobs(engine, _scope(spec), Selection(), jobs=jobs, named=named).jobs
        wanted = _pending(chosen, engine, spec, retry_failures=True)
        return _open_plan(wanted, manifest, plan_uri, engine, spec, kind="backfill")


def _scope(spec: Spec) -> Scope:
    return Scope(dataset=DATASET, spec_id=spec.spec_id)


def _has_questions(spec: Spec) -> bool:
    return not isinstance(spec, DescribeSpec)


def _open_plan(wanted: JobTable, manifest: str, plan_uri: str, engine: Engine, spec: Spec, *, kind: str) -> Plan:
    if isinstance(spec, RunSpec):
        find_ambiguous_jobs(wanted.parts(), scoring=spec.choice_scoring, encode=lambda text: list(text.encode()))
    with PlanWriter(ObjectStore(_OBJECTS), plan_uri, seal=_OBJECTS.seal) as writer:
        for shards in split_into_shards(wanted.parts(), target_jobs=100):
            writer.add(shards.rows, shards.sizes)
    made = Plan(
        plan_id=uuid4(),
        run_id=RUN.run_id,
        dataset=DATASET,
        spec_id=spec.spec_id,
        manifest_uri=manifest,
        manifest_fingerprint="",
        kind=kind,
        shared=kind != "backfill",
        plan_uri=plan_uri,
        shards=len(writer.jobs),
        jobs=sum(writer.jobs),
    )
    open_plan(engine, made, writer.jobs)
    return made


def audit(manifest: str, settings: DatabaseSettings, spec: Spec = SPEC) -> AuditReport:
    """Audit a manifest, read from Parquet, against the database."""
    with open_manifest(manifest, ObjectStore(_OBJECTS)) as files:
        jobs = read_unchecked_batches(files, questions=_has_questions(spec))
        return audit_jobs(connect(settings), _scope(spec), jobs=jobs)


def pending_set(manifest: str, ids: str, settings: DatabaseSettings, spec: Spec = SPEC) -> tuple[int, int]:
    """Return the number of named jobs, and of those that a backfill has to answer."""
    named = pl.Series("job_id", Path(ids).read_text().splitlines())
    with open_jobs(manifest, ObjectStore(_OBJECTS), only=named, questions=_has_questions(spec)) as jobs:
        return len(jobs), len(_pending(jobs, connect(settings), spec, retry_failures=True))


def catalogue(settings: DatabaseSettings) -> int:
    """Read what a search knows of all described videos, as it does when it opens the index; return their number."""
    known = DatabaseCatalogue(connect(settings))
    return sum(len(known.files(model)) for model in known.models())


def _pending(jobs: JobTable, engine: Engine, spec: Spec, *, retry_failures: bool = False) -> JobTable:
    return pending_jobs(engine, _scope(spec), jobs=jobs, fingerprints_of=fingerprints_of, retry_failures=retry_failures)
