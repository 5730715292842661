"""Exports that fail, are killed, or conflict: each row is in the lake once after the next one."""

import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy
from pyiceberg.utils.config import Config

from infra.settings import ResultsSettings
from reelabel.errors import ConfigurationError
from tasks.results.lake import export, parquet
from tasks.results.runs import close_run, record_heartbeat
from tasks.results.write import ShardWriter
from tests.results.lake import other_process
from tests.results.lake.conftest import Lake, labelled, run_elsewhere
from tests.results.rows import job, result


def test_a_failed_attempt_is_retried_and_leaves_no_file_behind(db, objects, store_settings, target, monkeypatch):
    lake = Lake(db, objects, store_settings, target, "parquet")
    key = labelled(db, "d", "a", "b", "c")
    monkeypatch.setattr(parquet, "_FILE_BYTES", 1)
    monkeypatch.setattr("tasks.results.read._ROWS_PER_PART", 1)
    with monkeypatch.context() as patch:
        patch.setattr(export, "update", lambda *_: pytest.fail("The process is killed."))
        with pytest.raises(pytest.fail.Exception):
            lake.export()
    before = lake.files()
    monkeypatch.undo()

    assert lake.export() == 3

    assert len(before) == 4
    assert len(lake.files()) == 2
    assert len(lake.listed(key)["files"]) == 1


@pytest.mark.system
@pytest.mark.parametrize(
    ("target", "form"),
    [("folder", "parquet"), ("s3", "parquet"), ("folder", "delta"), ("folder", "iceberg")],
    indirect=["target"],
)
@pytest.mark.parametrize("moment", other_process.MOMENTS)
def test_a_process_that_is_killed_leaves_each_row_once_after_the_next(
    db, objects, store_settings, target, form, moment
):
    lake = Lake(db, objects, store_settings, target, form)
    labelled(db, "d", "a", "b", "c")
    assert lake.export() == 3
    labelled(db, "d", "d", "e")
    exit_code = run_elsewhere(other_process.export_and_die, db, lake, moment)
    between = lake.rows()["job_id"].to_list()

    assert exit_code == -signal.SIGKILL
    assert between == [*("abc" if moment == "amid its rows" else "abcde")]
    assert lake.export() == 2
    assert lake.rows()["job_id"].to_list() == [*"abcde"]


@pytest.mark.system
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_processes_that_export_at_once_leave_each_row_once(db, objects, store_settings, target, form):
    lake = Lake(db, objects, store_settings, target, form)
    names = [f"set{number}" for number in range(4)]
    for name in names:
        labelled(db, name, f"{name}a", f"{name}b")

    def attempt(name):
        try:
            lake.export(name)
        except ConfigurationError as error:
            return error.message
        return ""

    with ThreadPoolExecutor(8) as threads:
        refused = [*threads.map(attempt, names * 2)]
    for name in names:  # as the next runs do
        lake.export(name)

    assert lake.rows()["job_id"].to_list() == [f"{name}{each}" for name in names for each in "ab"]
    assert all("cannot be written" in each for each in refused if each)


def test_a_slow_export_of_rows_that_have_changed_is_made_again(db, local, monkeypatch):
    key = labelled(db, "d", "a", "b", state="lost")
    tables = {"parquet": export.ParquetFiles, "delta": export.DeltaTables, "iceberg": export.IcebergTables}
    kind = tables[local.settings.lake or "parquet"]
    write, went_on = kind.write, []

    def write_slowly(lake, table, parts, **facts):
        parts = iter([*parts])
        if not went_on:
            went_on.append(True)
            record_heartbeat(db, key.run_id)
            ShardWriter(db, key).write([result(job("c"))], [])
            close_run(db, key.run_id, state="done", message="")
            assert local.export() == 3
        return write(lake, table, parts, **facts)

    monkeypatch.setattr(kind, "write", write_slowly)

    local.export()

    assert local.rows()["job_id"].to_list() == ["a", "b", "c"]
    assert (local.listed(key)["rows"], local.listed(key)["state"]) == (3, "done")
    assert local.export() == 0


@pytest.mark.parametrize("form", ["delta", "iceberg"])
@pytest.mark.parametrize("other", ["d", "e"])
def test_a_commit_that_conflicts_with_another_is_retried(
    db, objects, store_settings, tmp_path, monkeypatch, form, other
):
    lake = Lake(db, objects, store_settings, f"file://{tmp_path}/lake", form)
    labelled(db, "d", "first")
    labelled(db, "e", "first of another")
    lake.export("d")
    lake.export("e")
    labelled(db, "d", "a", "b")
    if other == "e":
        labelled(db, "e", "c")
    read, reads = export.read_outcomes_of_run, []

    def read_slowly(*arguments, **options):
        parts = read(*arguments, **options)
        yield next(parts)
        reads.append(arguments)
        if len(reads) == 1:
            assert run_elsewhere(other_process.export_all, db, lake, other) == 0
        yield from parts

    monkeypatch.setattr(export, "read_outcomes_of_run", read_slowly)

    assert lake.export("d") == 2

    assert len(reads) == (2 if other == "d" else 1)  # the rows of another dataset are not in conflict
    others = ["c"] if other == "e" else []
    assert lake.rows()["job_id"].to_list() == ["a", "b", *others, "first", "first of another"]


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_an_error_of_the_database_is_no_fault_of_the_table(db, objects, store_settings, tmp_path, monkeypatch, form):
    lake = Lake(db, objects, store_settings, f"file://{tmp_path}/lake", form)
    labelled(db, "d", "a", "b")
    read = export.read_outcomes_of_run

    def read_while_renamed(*arguments, **options):
        parts = read(*arguments, **options)
        yield next(parts)
        with db.begin() as connection:
            connection.execute(sqlalchemy.text("ALTER TABLE result RENAME TO gone"))
        yield from parts

    monkeypatch.setattr(export, "read_outcomes_of_run", read_while_renamed)

    with pytest.raises(sqlalchemy.exc.ProgrammingError, match=r'relation "reelabel\.result" does not exist'):
        lake.export()


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_a_store_that_refuses_leaves_the_run_for_later(db, objects, store_settings, local, form):
    labelled(db, "d", "a", "b")
    with pytest.raises(ConfigurationError) as raised:
        Lake(db, objects, store_settings, "s3://no-such-bucket-here/lake", form).export()
    assert raised.value.message.isprintable()
    assert "[0m" not in raised.value.message

    assert local.export() == 2


@pytest.mark.parametrize(
    ("form", "package", "extra"), [("delta", "deltalake", "lake"), ("iceberg", "pyiceberg", "iceberg")]
)
def test_a_format_without_its_package_names_the_command_that_installs_it(
    db, objects, store_settings, tmp_path, monkeypatch, form, package, extra
):
    labelled(db, "d", "a", "b")
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(ConfigurationError, match=rf"pip install .*\[{extra}\]"):
        Lake(db, objects, store_settings, f"file://{tmp_path}", form).export()


def test_a_catalog_that_does_not_respond_leaves_the_run_for_later(db, objects, store_settings, tmp_path, monkeypatch):
    lake = Lake(db, objects, store_settings, f"file://{tmp_path}", "iceberg")
    labelled(db, "d", "a", "b")
    with monkeypatch.context() as patch:
        patch.setenv("PYICEBERG_CATALOG__LAKE__URI", "sqlite:////no/such/folder/catalog.db")
        patch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
        with pytest.raises(ConfigurationError, match=r"The Iceberg table lake\.reelabel\.labels cannot be written"):
            lake.export()

    assert lake.export() == 2


@pytest.mark.parametrize("form", ["iceberg", "iceberg:lake", "delta:lake.reelabel", "csv"])
def test_a_format_that_is_unknown_or_names_no_tables_is_refused(form):
    with pytest.raises(ValueError, match="must be parquet, delta or iceberg:CATALOG"):
        ResultsSettings(export_uri="s3://lake/rows", export_format=form)
