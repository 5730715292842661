"""A night that a person has repaired is found out by the rows of its jobs, not by the kind of the runs since."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from infra.settings import StoreSettings
from reelabel.sources.object_store import ObjectStore
from tasks.domain import ModelIdentity
from tasks.manifest.digests import jobs_to_rows
from tasks.results.repairs import Repairs, Work
from tasks.results.runs import close_run, open_run
from tasks.results.write import RunKey, ShardWriter
from tests.results.rows import FACTS, SPEC, failure, job, result

JOBS = [job("a"), job("b"), job("c")]


@pytest.fixture
def manifest(tmp_path):
    path = tmp_path / "night.parquet"
    jobs_to_rows(JOBS).drop("row", "job_digest").write_parquet(path)
    return path


@pytest.fixture
def ended(db, manifest):
    """Record a run that has written some rows."""

    def ended(kind, state, *, results=(), failures=(), spec=SPEC, **facts):
        key = RunKey(run_id=uuid4(), dataset="d", spec_id=spec.spec_id, host="h")
        facts |= {"kind": kind, "manifest_uri": str(manifest)}
        open_run(db, run_id=key.run_id, spec=spec, facts=FACTS | facts)
        ShardWriter(db, key).write(results=list(map(result, results)), failures=list(map(failure, failures)))
        close_run(db, key.run_id, state=state, message="")

    return ended


@pytest.fixture
def is_repaired(db, manifest):
    since = datetime.now(UTC) - timedelta(minutes=1)
    night = Work(manifest_uri=str(manifest), dataset="d", since=since, spec_id=SPEC.spec_id)
    repairs = Repairs()
    return lambda **changed: repairs.have_done(replace(night, **changed), db, ObjectStore(StoreSettings()))


def test_a_night_is_repaired_once_backfills_have_left_each_job_with_a_row(ended, is_repaired):
    ended("classify", "failed", results=JOBS[:1])
    assert not is_repaired()

    ended("backfill", "done", results=JOBS[1:2])
    assert not is_repaired()

    ended("backfill", "done", failures=JOBS[2:])
    assert is_repaired()
    assert is_repaired(spec_id=None)
    assert not is_repaired(since=datetime.now(UTC))
    assert not is_repaired(dataset="other")


def test_rows_that_were_rejected_need_no_job_with_a_row(ended, is_repaired, manifest):
    jobs_to_rows([*JOBS, job("d", choices=("yes", "yes"))]).drop("row", "job_digest").write_parquet(manifest)

    ended("backfill", "done", results=JOBS, jobs_total=4, jobs_rejected=1)

    assert is_repaired()


def test_rows_about_other_questions_or_under_another_spec_repair_nothing(ended, is_repaired):
    other = SPEC.model_copy(update={"model": ModelIdentity(name="other")})
    ended("backfill", "done", results=JOBS, spec=other)
    ended("backfill", "done", results=[*JOBS[:2], replace(JOBS[2], prompt="Another?")])

    assert not is_repaired()


def test_a_night_whose_manifest_is_gone_stays_unrepaired_until_a_run_finishes_it(ended, is_repaired, manifest):
    ended("backfill", "done", results=JOBS)
    manifest.unlink()
    assert not is_repaired()

    ended("classify", "done")
    assert is_repaired()
