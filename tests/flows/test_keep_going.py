"""`classify --keep-going` answers the valid rows of a manifest, and lists the others with their reasons."""

import polars as pl
import pytest
from sqlalchemy import select

from infra.database.connect import connected
from reelabel.sources.object_store import ObjectStore
from tasks.database.tables import RUN
from tasks.demo.clips import make_demo
from tests.command_line import reelabel
from tests.flows.runs import artifact_of

pytestmark = pytest.mark.xdist_group("test_evaluate")


@pytest.fixture(scope="module")
def faulty_manifest(tmp_path_factory):
    """Six clips with eighteen jobs: one has no question, one the id of another."""
    folder = tmp_path_factory.mktemp("blemished")
    jobs = make_demo(folder, seed=5, clips=6)
    ids = jobs["job_id"]
    jobs = jobs.with_columns(
        prompt=pl.when(pl.col("job_id") == ids[3]).then(None).otherwise("prompt"),
        job_id=pl.when(pl.col("job_id") == ids[8]).then(pl.lit(ids[0])).otherwise("job_id"),
    )
    jobs.write_parquet(folder / "blemished.parquet")
    return str(folder / "blemished.parquet")


@pytest.fixture
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_in_an_empty_folder")
def test_a_run_answers_the_valid_rows_and_lists_the_others(served, own_services, faulty_manifest, tmp_path):
    refused = reelabel(served, "classify", faulty_manifest)
    run = reelabel(served, "classify", faulty_manifest, "--keep-going")
    audit = reelabel(served, "audit", "last")
    again = reelabel(served, "backfill", "--missing", "--dry-run")

    assert refused.returncode == 2
    assert "prompt is null. 1 row, first row 3" in refused.stderr
    assert run.returncode == 1, run.stderr
    assert "Reconciled: 16 jobs = 16 labels + 0 failures." in run.stdout
    assert f"Rejected 2 rows of the manifest: {tmp_path}/rejected.csv has the reasons." in run.stdout
    rejected = pl.read_csv(tmp_path / "rejected.csv")
    assert rejected["row"].to_list() == [3, 8]
    assert rejected["reason"].to_list() == ["prompt is null.", "job_id is that of an earlier row."]
    assert audit.returncode == 0, audit.stdout
    assert "Would answer 0 jobs" in again.stdout, again.stderr
    with connected(own_services.database) as engine, engine.connect() as connection:
        row = connection.execute(select(RUN).order_by(RUN.c.started_at.desc()).limit(1)).mappings().one()
    assert (row["jobs_total"], row["jobs_rejected"], row["jobs_skipped"]) == (16, 2, 0)
    assert "2 rows of the manifest rejected" in artifact_of(own_services.prefect, row["run_id"], "reelabel-how-to-read")
    uri = f"{own_services.store.uri}/reports/{row['run_id']}.csv"
    assert ObjectStore(own_services.store).read(uri) == (tmp_path / "rejected.csv").read_bytes()
