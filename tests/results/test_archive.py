"""A closed dataset is archived as Parquet files, its rows are deleted, and the files bring them back."""

import time
from dataclasses import replace
from uuid import uuid4

import polars as pl
import pytest
import sqlalchemy

from infra.database import copy_out
from reelabel.errors import ConfigurationError
from tasks.database.tables import EVALUATION, RESULT
from tasks.plans.lease import Work, claim
from tasks.results import archive
from tasks.results.archive import archive_dataset, restore_dataset
from tasks.results.audit import audit_jobs
from tasks.results.runs import close_run, open_run
from tasks.results.write import RunKey, ShardWriter
from tests.plans.conftest import make_plan
from tests.results import test_chunks, test_descriptions
from tests.results.rows import FACTS, SCOPE, SPEC, failure, job, record_plan, result

__all__ = ["make_plan"]

JOBS = [job(name) for name in ("a", 'b "quoted"\r\n,', "c")]


def ignore(_):
    """Do not show progress."""


def rows_of(db):
    """All rows of all tables as text, without numbers that Postgres gives by itself."""
    found = {}
    with db.connect() as connection:
        inspector = sqlalchemy.inspect(connection)
        for table in inspector.get_table_names(schema="reelabel"):
            names = [each["name"] for each in inspector.get_columns(table, "reelabel") if each["name"] != "history_id"]
            query = sqlalchemy.text(f"SELECT ROW({', '.join(names)})::text FROM reelabel.{table}")
            found[table] = sorted(connection.execute(query).scalars())
    return found


@pytest.fixture
def closed(db, run):
    """A run that has ended: a label that replaced another one, a label of awkward text, and a failure."""
    writer = ShardWriter(db, run)
    odd = replace(JOBS[1], task="", answer="no")
    writer.write(
        [result(JOBS[0], (0.1, 0.9)), result(odd, (1 / 3, 2 / 3), decode_note="\u2028 'x'")], [failure(JOBS[2])]
    )
    writer.write([result(JOBS[0], (0.5, 0.5), longest_gap_s=1e-7)], [])
    close_run(db, run.run_id, state="done", message="")
    return run


@pytest.fixture
def other(db):
    """A run of another dataset with the same spec."""
    key = RunKey(run_id=uuid4(), dataset="other", spec_id=SPEC.spec_id, host="h")
    open_run(db, run_id=key.run_id, spec=SPEC, facts=FACTS | {"dataset": "other"})
    ShardWriter(db, key).write([result(JOBS[0])], [])
    return key


@pytest.fixture(params=["folder", "s3"])
def target(request, tmp_path, store_settings):
    return f"{tmp_path}/archive" if request.param == "folder" else f"{store_settings.uri}/archive"


@pytest.mark.usefixtures("closed")
def test_an_archive_takes_as_long_as_it_needs_whatever_limit_a_login_has(db, objects, tmp_path):
    with db.begin() as connection:
        connection.execute(sqlalchemy.text(f"ALTER DATABASE {db.url.database} SET transaction_timeout = '50ms'"))
    db.dispose()

    assert archive_dataset(db, "d", objects, f"{tmp_path}/archive", notify=lambda _: time.sleep(0.1)) > 0


@pytest.mark.usefixtures("closed", "other")
def test_a_dataset_is_archived_dropped_and_restored_exactly(db, objects, target):
    before = rows_of(db)

    archived = archive_dataset(db, "d", objects, target, notify=ignore)

    left = rows_of(db)
    assert [*map(len, (left["result"], left["failure"], left["run"], left["spec"]))] == [1, 0, 1, 1]
    assert left["result_history"] == []
    with pytest.raises(ConfigurationError, match="There is no run of a dataset d"):
        archive_dataset(db, "d", objects, f"{target}-2", notify=ignore)

    assert restore_dataset(db, objects, target, notify=ignore) == ("d", archived)

    assert rows_of(db) == before
    assert audit_jobs(db, SCOPE, jobs=JOBS).is_reconciled


@pytest.mark.usefixtures("closed")
def test_rows_of_another_database_are_no_newer_than_those_written_after_them(db, objects, tmp_path):
    target = f"{tmp_path}/archive"
    newest = sqlalchemy.text("UPDATE reelabel.failure SET fence = 1000")
    with db.begin() as connection:
        connection.execute(newest)
    archive_dataset(db, "d", objects, target, notify=ignore)

    restore_dataset(db, objects, target, notify=ignore)

    with db.begin() as connection:
        assert connection.execute(sqlalchemy.text("SELECT nextval('reelabel.fence')")).scalar_one() > 1000


def test_descriptions_chunks_and_plans_are_in_an_archive(db, run, objects, tmp_path):
    test_chunks.write(db, run, test_chunks.film(), {0: result(job("a")), 1: failure(job("a")), 2: result(job("a"))})
    spec = test_descriptions.SPEC
    videos = RunKey(run_id=uuid4(), dataset="d", spec_id=spec.spec_id, host="h")
    open_run(db, run_id=videos.run_id, spec=spec, facts=FACTS | {"kind": "describe"})
    test_descriptions.write(db, videos, test_descriptions.described(test_descriptions.film("a")))
    record_plan(db, run, [1])
    for key in (run, videos):
        close_run(db, key.run_id, state="done", message="")
    before = rows_of(db)

    archive_dataset(db, "d", objects, f"{tmp_path}/archive", notify=ignore)
    left = {table for table, rows in rows_of(db).items() if rows}
    restore_dataset(db, objects, f"{tmp_path}/archive", notify=ignore)

    assert left == {"spec"}
    assert rows_of(db) == before
    assert {table for table, rows in before.items() if rows} > {"chunk", "description", "description_chunk", "shard"}


@pytest.mark.usefixtures("closed")
def test_a_large_table_is_archived_in_several_files(db, objects, tmp_path, monkeypatch):
    monkeypatch.setattr(copy_out, "_BLOCK_BYTES", 1)
    monkeypatch.setattr(archive, "_BLOCKS_PER_FILE", 1)
    before = rows_of(db)

    archive_dataset(db, "d", objects, f"{tmp_path}/archive", notify=ignore)
    restore_dataset(db, objects, f"{tmp_path}/archive", notify=ignore)

    assert len(list((tmp_path / "archive" / "result").iterdir())) == 2
    assert rows_of(db) == before


@pytest.mark.usefixtures("closed")
def test_a_row_of_several_megabytes_is_archived(db, objects, tmp_path):
    body = {"name": "x" * 3 * 1024**2}
    with db.begin() as connection:
        row = {"evaluation_id": uuid4(), "dataset": "d", "manifest_uri": "m", "body": body}
        connection.execute(EVALUATION.insert().values(row))
    before = rows_of(db)

    archive_dataset(db, "d", objects, f"{tmp_path}/archive", notify=ignore)
    restore_dataset(db, objects, f"{tmp_path}/archive", notify=ignore)

    assert rows_of(db) == before


@pytest.mark.usefixtures("closed")
def test_an_archive_is_read_by_other_programs(db, objects, tmp_path):
    archive_dataset(db, "d", objects, f"{tmp_path}/archive", notify=ignore)

    rows = pl.read_parquet(f"{tmp_path}/archive/result/*.parquet")
    assert rows.select("job_id", "task", "label", "margin").rows()[0] == ("a", None, "no", 0.0)
    assert rows["probabilities"].dtype == pl.List(pl.Float32)
    assert rows["created_at"].dtype == pl.Datetime("us", "UTC")


def test_a_run_in_progress_is_in_the_way(db, run, objects, tmp_path):
    with pytest.raises(ConfigurationError, match=f"Run {run.run_id} of dataset d is in progress; wait for its end"):
        archive_dataset(db, "d", objects, f"{tmp_path}/archive", notify=ignore)

    assert not (tmp_path / "archive").exists()


@pytest.mark.usefixtures("closed")
def test_a_worker_with_a_shard_is_in_the_way(db, make_plan, objects, tmp_path):
    plan = make_plan()
    claim(db, plan.plan_id, Work.BOTH, holder="here", lease_s=600)

    with pytest.raises(ConfigurationError, match="A worker on here still has a shard of dataset d"):
        archive_dataset(db, "d", objects, f"{tmp_path}/archive", notify=ignore)


@pytest.mark.usefixtures("closed")
def test_no_run_starts_while_a_dataset_is_archived(db, objects, tmp_path):
    refused = []

    def start(_):
        try:
            open_run(db, run_id=uuid4(), spec=SPEC, facts=FACTS)
        except ConfigurationError as error:
            refused.append(error.message)

    archive_dataset(db, "d", objects, f"{tmp_path}/archive", notify=start)

    assert refused
    assert refused[0].startswith("Dataset d is being archived")
    assert rows_of(db)["run"] == []


@pytest.mark.usefixtures("closed")
def test_a_row_that_changes_meanwhile_stays(db, objects, tmp_path):
    def change(done):
        if done.startswith("result:"):
            with db.begin() as connection:
                connection.execute(RESULT.update().values(task="other"))

    with pytest.raises(ConfigurationError, match=r"Rows of reelabel\.result changed while they were archived"):
        archive_dataset(db, "d", objects, f"{tmp_path}/archive", notify=change)

    assert len(rows_of(db)["result"]) == 2


def test_a_row_that_comes_meanwhile_keeps_what_it_refers_to(db, closed, objects, tmp_path):
    def write(done):
        if done.startswith("result:"):
            ShardWriter(db, replace(closed, dataset="other")).write([result(JOBS[0])], [])

    with pytest.raises(ConfigurationError, match=r"Rows of reelabel\.run_spec changed while they were archived"):
        archive_dataset(db, "d", objects, f"{tmp_path}/archive", notify=write)

    assert len(rows_of(db)["result"]) == 3


def cut_short(file):
    file.write_bytes(file.read_bytes()[:-100])


def of_another_dataset(file):
    pl.read_parquet(file).with_columns(dataset=pl.lit("other")).write_parquet(file)


def changed(file):
    pl.read_parquet(file).with_columns(label=pl.lit("yes")).write_parquet(file)


def without_a_column(file):
    pl.read_parquet(file).drop("label").write_parquet(file)


@pytest.mark.usefixtures("closed", "other")
def test_a_damaged_archive_restores_nothing(db, objects, tmp_path):
    folder = tmp_path / "archive"
    archive_dataset(db, "d", objects, str(folder), notify=ignore)
    left = rows_of(db)
    file = folder / "result" / "000001.parquet"
    whole = file.read_bytes()
    for damage in (cut_short, of_another_dataset, changed, without_a_column, lambda file: file.unlink()):
        damage(file)
        with pytest.raises(ConfigurationError, match=r"damaged|no row was restored"):
            restore_dataset(db, objects, str(folder), notify=ignore)
        file.write_bytes(whole)
    with pytest.raises(ConfigurationError, match=r"is no archive of `reelabel dataset archive`"):
        restore_dataset(db, objects, str(tmp_path), notify=ignore)

    assert rows_of(db) == left
    restore_dataset(db, objects, str(folder), notify=ignore)
    with pytest.raises(ConfigurationError, match="Dataset d has runs in this database"):
        restore_dataset(db, objects, str(folder), notify=ignore)


def test_a_flipped_bit_in_a_footer_is_damage(objects, tmp_path):
    file = tmp_path / "result" / "000001.parquet"
    file.parent.mkdir()
    pl.DataFrame({"job_id": ["a"], "margin": [0.5]}).write_parquet(file)
    whole, faults = file.read_bytes(), 0
    footer_bytes = int.from_bytes(whole[-8:-4], "little") + 8
    for place in range(1, footer_bytes):
        damaged = bytearray(whole)
        damaged[-place] ^= 0x40
        file.write_bytes(damaged)
        try:
            archive._Files(objects, str(tmp_path)).read(RESULT, 1)
        except ConfigurationError:
            faults += 1

    assert faults


@pytest.mark.usefixtures("closed")
def test_a_folder_with_files_is_not_written_to(db, objects, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="is not empty; name a new folder"):
        archive_dataset(db, "d", objects, str(tmp_path), notify=ignore)
