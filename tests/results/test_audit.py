from uuid import uuid4

import polars as pl
import pytest
from sqlalchemy import text

from tasks.manifest.digests import jobs_to_rows
from tasks.results.audit import audit_jobs
from tasks.results.read import failures_of_run
from tasks.results.write import ShardWriter
from tests.results.rows import SCOPE, failure, job, result


def test_the_audit_names_what_is_missing_and_stale(db, run):
    jobs = [job(name) for name in "abc"]
    ended = [result(jobs[0]), result(job("b", prompt="old?")), result(job("z"))]
    ShardWriter(db, run).write(results=ended, failures=[])

    report = audit_jobs(db, SCOPE, jobs=jobs)

    assert not report.is_reconciled
    assert (report.labels, report.missing, report.stale, report.orphaned) == (1, 1, 1, 1)
    assert report.examples == ("c", "b")
    assert "1 missing, 0 doubled, 1 stale" in str(report)


def test_the_audit_names_a_job_with_a_label_and_a_failure(db, run):
    ShardWriter(db, run).write(results=[result(job("a"))], failures=[failure(job("b"))])
    with db.begin() as connection:
        connection.execute(text("UPDATE reelabel.failure SET job_id = 'a'"))

    report = audit_jobs(db, SCOPE, jobs=[job("a")])

    assert (report.doubled, report.labels, report.failures, report.is_reconciled) == (1, 0, 0, False)


def test_the_audit_reports_ids_that_occur_in_several_rows(db, run, tmp_path):
    jobs = [job("a"), job("b"), job("b")]
    ShardWriter(db, run).write(results=[result(job("a")), result(job("b"))], failures=[])

    report = audit_jobs(db, SCOPE, jobs=jobs, listing=tmp_path / "ids.txt")

    assert (report.repeated, report.labels, report.is_reconciled) == (1, 3, False)
    assert str(report).endswith("1 ids in several rows of the manifest, such as b; run `reelabel classify` again.")
    assert report.examples == ("b",)
    assert (tmp_path / "ids.txt").read_text() == ""  # no backfill can ask about one of the rows


def test_ids_with_commas_quotes_and_newlines_are_preserved(db, run, tmp_path):
    jobs = [job(name, task="") for name in ("a,b", 'a"b', "a\nb", "\\.", "\\N", "NULL", " a", "\u2028")]
    ShardWriter(db, run).write(results=[result(one) for one in jobs[1:]], failures=[])

    report = audit_jobs(db, SCOPE, jobs=jobs, listing=tmp_path / "list.parquet")

    assert (report.labels, report.missing, report.orphaned) == (7, 1, 0)
    assert pl.read_parquet(tmp_path / "list.parquet").rows() == [("missing", "a,b", None)]


@pytest.mark.parametrize("ending", ["parquet", "csv", "txt"])
def test_the_audit_lists_ids_by_how_they_ended(db, run, tmp_path, ending):
    jobs = [job(name) for name in "abcd"]
    ended = [result(jobs[0]), result(job("b", prompt="old?")), result(job("z"))]
    ShardWriter(db, run).write(results=ended, failures=[failure(jobs[2])])
    path = tmp_path / f"list.{ending}"

    audit_jobs(db, SCOPE, jobs=[jobs_to_rows(jobs)], listing=path)

    if ending == "txt":
        assert path.read_text().split() == ["b", "c", "d"]
        return
    rows = pl.read_parquet(path) if ending == "parquet" else pl.read_csv(path)
    assert rows.columns == ["ending", "job_id", "code"]
    assert rows.rows() == [
        ("failed", "c", "no_frames"),
        ("missing", "d", None),
        ("orphaned", "z", None),
        ("stale", "b", None),
    ]


def test_failures_reconcile_and_are_counted_by_code(db, run):
    jobs = [job(name) for name in "abc"]
    failures = [failure(jobs[1]), failure(jobs[2], code="video_missing")]
    ShardWriter(db, run).write(results=[result(jobs[0])], failures=failures)

    report = audit_jobs(db, SCOPE, jobs=jobs)

    assert report.is_reconciled
    assert (report.labels, report.failures, report.codes) == (1, 2, {"no_frames": 1, "video_missing": 1})


def test_of_the_failures_of_a_run_the_first_ones_are_read(db, run):
    for name in "cba":
        ShardWriter(db, run).write(results=[], failures=[failure(job(name))])

    assert [failed["job_id"] for failed in failures_of_run(db, run.run_id, limit=2)] == ["a", "b"]
    assert failures_of_run(db, uuid4(), limit=2) == []
