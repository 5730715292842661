"""The rows of each ended run are written to a lake once, however often an attempt fails."""

import json
import multiprocessing
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import deltalake
import polars as pl
import pytest
import sqlalchemy
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from infra.processes import free_port
from infra.settings import ResultsSettings
from reelabel.errors import ConfigurationError
from reelabel.options import reveal
from tasks.plans.plan import close_plan
from tasks.results.lake import export, parquet
from tasks.results.lake.delta import _storage_options
from tasks.results.lake.export import export_ended_runs
from tasks.results.runs import cancel_run, close_run, open_run, record_heartbeat
from tasks.results.write import RunKey, ShardWriter
from tests.plans.conftest import make_plan
from tests.results import test_descriptions
from tests.results.lake import other_process
from tests.results.rows import FACTS, SPEC, failure, job, result

__all__ = ["make_plan"]

ODD = "clips/ä %41=1"
FORMATS = ["parquet", "delta", "iceberg"]


def labelled(db, dataset, *names, state="done"):
    """A run that has labelled all but the last of some jobs, which has failed."""
    key = RunKey(run_id=uuid4(), dataset=dataset, spec_id=SPEC.spec_id, host="h")
    open_run(db, run_id=key.run_id, spec=SPEC, facts=FACTS | {"dataset": dataset})
    *done, failed = (job(name) for name in names)
    ShardWriter(db, key).write([result(each, (1 / 3, 2 / 3)) for each in done], [failure(failed)])
    if state != "running":
        close_run(db, key.run_id, state=state, message="")
    return key


def run_elsewhere(function, db, lake, argument):
    """Run a function of `other_process` in one, forked by a server that has imported it; returns its exit code."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([other_process.__name__])
    url = db.url.render_as_string(hide_password=False)
    arguments = (dict(os.environ), function, url, lake.store, lake.settings, argument)
    process = context.Process(target=other_process.run_in, args=arguments)
    process.start()
    process.join()
    return process.exitcode


class Lake:
    """A lake in one format, and what is in it."""

    def __init__(self, db, objects, store, target, form):
        self.db, self.objects, self.store, self.target = db, objects, store, target
        tables = {"iceberg_namespace": "lake.reelabel"} if form == "iceberg" else {}
        self.settings = ResultsSettings(export_uri=target, export_format=form, **tables)

    def export(self, dataset="d"):
        return export_ended_runs(self.db, self.store, self.settings, dataset=dataset)

    def files(self):
        return sorted(found.uri for found in self.objects.list(self.target))

    def rows(self, table="labels"):
        """The rows of all runs, in the order of job ids."""
        if self.settings.export_format == "delta":
            place = self.objects.local_path(f"{self.target}/{table}") or f"{self.target}/{table}"
            found = deltalake.DeltaTable(str(place), storage_options=_storage_options(self.store))
            rows = pl.from_arrow(found.to_pyarrow_table())
        elif self.settings.export_format == "iceberg":
            rows = pl.from_arrow(load_catalog("lake").load_table(f"reelabel.{table}").scan().to_arrow())
        else:
            uris = [uri for uri in self.files() if uri.endswith(".parquet") and f"/{table}/" in uri]
            rows = pl.concat(pl.read_parquet(self.objects.read(uri)) for uri in uris)
        return rows.sort("job_id")

    def listed(self, key):
        return json.loads(self.objects.read(f"{self.target}/runs/{key.run_id}.json"))


@pytest.fixture(params=["folder", "s3"])
def target(request, tmp_path, store_settings):
    return (
        f"file://{tmp_path}/a lake".replace(" ", "%20") if request.param == "folder" else f"{store_settings.uri}/a lake"
    )


@pytest.fixture(autouse=True)
def iceberg_catalog(tmp_path, monkeypatch):
    """An SQL catalog `lake` in PyIceberg's configuration."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())


@pytest.fixture(params=FORMATS)
def lake(request, db, objects, store_settings, target):
    return Lake(db, objects, store_settings, target, request.param)


@pytest.fixture(params=FORMATS)
def local(request, db, objects, store_settings, tmp_path):
    """A lake in a folder."""
    return Lake(db, objects, store_settings, f"file://{tmp_path}/lake", request.param)


def test_every_run_is_exported_once_and_listed(db, lake):
    first, second = labelled(db, ODD, "a", "b", "c"), labelled(db, ODD, "d", "e", state="failed")
    labelled(db, "other", "a", "b")
    labelled(db, ODD, "x", "y", state="running")

    assert lake.export(ODD) == 5
    assert lake.export(ODD) == 0

    assert [lake.listed(key)["rows"] for key in (first, second)] == [3, 2]
    assert lake.rows().select("job_id", "label", "code").rows() == [
        ("a", "no", None),
        ("b", "no", None),
        ("c", None, "no_frames"),
        ("d", "no", None),
        ("e", None, "no_frames"),
    ]


def test_the_files_of_a_run_are_listed(db, objects, store_settings, target):
    lake = Lake(db, objects, store_settings, target, "parquet")
    key = labelled(db, ODD, "a", "b", "c")

    lake.export(ODD)

    [file] = lake.listed(key)["files"]
    assert file["rows"] == len(pl.read_parquet(objects.read(file["uri"]))) == 3
    assert len(lake.files()) == 2


def test_a_delta_table_is_partitioned_and_each_version_is_one_run(db, tmp_path, objects, store_settings):
    lake = Lake(db, objects, store_settings, f"file://{tmp_path}", "delta")
    keys = [labelled(db, dataset, "a", "b") for dataset in (ODD, "plain")]
    for dataset in (ODD, "plain"):
        lake.export(dataset)

    rows = pl.read_delta(f"{tmp_path}/labels")

    assert rows.group_by("dataset").len().sort("dataset").rows() == [(ODD, 2), ("plain", 2)]
    assert rows["date"].dtype == pl.Date
    assert rows["created_at"].dtype == pl.Datetime("us", "UTC")
    assert deltalake.DeltaTable(f"{tmp_path}/labels").metadata().partition_columns == ["dataset", "date"]
    versions = [lake.listed(key)["version"] for key in keys]
    assert pl.read_delta(f"{tmp_path}/labels", version=versions[0])["dataset"].unique().to_list() == [ODD]


def test_a_folder_is_read_by_its_partitions(db, objects, store_settings, tmp_path):
    lake = Lake(db, objects, store_settings, f"file://{tmp_path}", "parquet")
    labelled(db, ODD, "a", "b")
    labelled(db, "plain", "a", "b", "c")
    for dataset in (ODD, "plain"):
        lake.export(dataset)

    rows = pl.read_parquet(f"{tmp_path}/labels/**/*.parquet", hive_partitioning=True)

    assert rows.group_by("dataset").len().sort("dataset").rows() == [(ODD, 2), ("plain", 3)]
    assert rows["date"].dtype == pl.Date


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


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_columns_of_a_later_version_are_added_to_a_table(db, objects, store_settings, tmp_path, monkeypatch, form):
    lake = Lake(db, objects, store_settings, f"file://{tmp_path}", form)
    labelled(db, "d", "a", "b")
    lake.export()
    read = export.read_outcomes_of_run
    monkeypatch.setattr(
        export,
        "read_outcomes_of_run",
        lambda *args, **options: (part.with_columns(hue=pl.lit("red")) for part in read(*args, **options)),
    )
    labelled(db, "d", "c", "d")

    lake.export()

    assert lake.rows()["hue"].to_list() == [None, None, "red", "red"]


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


def test_a_run_whose_plan_others_continue_waits_for_its_end(db, run, make_plan, local):
    ShardWriter(db, run).write([result(job("a"))], [])
    plan = make_plan()
    close_run(db, run.run_id, state="lost", message="")
    assert local.export() == 0

    close_plan(db, plan.plan_id, state="done")
    assert local.export() == 1


def test_a_run_that_starts_again_is_exported_again(db, local):
    key = labelled(db, "d", "a", "b")
    assert local.export() == 2

    open_run(db, run_id=key.run_id, spec=SPEC, facts=FACTS)
    ShardWriter(db, key).write([result(job("c"))], [])
    close_run(db, key.run_id, state="done", message="")

    assert local.export() == 3
    assert len(local.rows()) == 3


def test_a_run_that_was_thought_lost_and_went_on_is_exported_at_its_end(db, local):
    key = labelled(db, "d", "a", "b", state="lost")
    assert local.export() == 2

    record_heartbeat(db, key.run_id)
    ShardWriter(db, key).write([result(job("c"))], [])
    assert local.export() == 0
    cancel_run(db, key.run_id)

    assert local.export() == 3


def test_a_slow_export_of_rows_that_have_changed_is_made_again(db, local, monkeypatch):
    key = labelled(db, "d", "a", "b", state="lost")
    tables = {"parquet": export.ParquetFiles, "delta": export.DeltaTables, "iceberg": export.IcebergTables}
    kind = tables[local.settings.export_format]
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


def test_the_list_of_a_run_has_no_signature_of_its_manifest(db, local):
    key = RunKey(run_id=uuid4(), dataset="d", spec_id=SPEC.spec_id, host="h")
    signed = "https://user:word@h/jobs.parquet?X-Amz-Signature=abcdef"
    open_run(db, run_id=key.run_id, spec=SPEC, facts=FACTS | {"manifest_uri": signed})
    close_run(db, key.run_id, state="done", message="")

    local.export()

    listed = json.dumps(local.listed(key))
    assert "jobs.parquet" in listed
    assert "abcdef" not in listed
    assert "word" not in listed


def test_descriptions_are_a_table_of_their_own(db, local):
    spec = test_descriptions.SPEC
    videos = RunKey(run_id=uuid4(), dataset="d", spec_id=spec.spec_id, host="h")
    open_run(db, run_id=videos.run_id, spec=spec, facts=FACTS | {"kind": "describe"})
    test_descriptions.write(db, videos, test_descriptions.described(test_descriptions.film("a")))
    close_run(db, videos.run_id, state="done", message="")

    assert local.export() == 1

    assert "tags" in local.rows("descriptions").columns


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


def test_rows_of_a_dataset_with_a_quote_are_replaced(db, local):
    key = labelled(db, "d's", "a", "b")
    assert local.export("d's") == 2
    close_run(db, key.run_id, state="done", message="")

    assert local.export("d's") == 2

    assert local.rows()["job_id"].to_list() == ["a", "b"]


def test_keys_of_the_store_are_used_without_variables_of_aws(db, objects, store_settings, monkeypatch):
    lake = Lake(db, objects, store_settings, f"{store_settings.uri}/lake", "delta")
    labelled(db, "d", "a", "b")
    others = {"AWS_SESSION_TOKEN": "of another", "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{free_port()}"}
    with monkeypatch.context() as patch:
        for name, value in others.items():
            patch.setenv(name, value)

        assert lake.export() == 2

        assert others.items() <= os.environ.items()
    assert len(lake.rows()) == 2


def test_without_keys_of_the_store_those_of_the_variables_are_used(db, objects, store_settings, monkeypatch):
    lake = Lake(db, objects, store_settings, f"{store_settings.uri}/lake", "delta")
    labelled(db, "d", "a", "b")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", reveal(store_settings.access_key_id))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", reveal(store_settings.secret_access_key))
    lake.store = replace(store_settings, access_key_id=None, secret_access_key=None)

    assert lake.export() == 2


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_an_error_of_the_database_is_no_fault_of_the_table(db, objects, store_settings, tmp_path, monkeypatch, form):
    lake = Lake(db, objects, store_settings, f"file://{tmp_path}/lake", form)
    labelled(db, "d", "a", "b")
    read = export.read_outcomes_of_run

    def read_what_goes(*arguments, **options):
        parts = read(*arguments, **options)
        yield next(parts)
        with db.begin() as connection:
            connection.execute(sqlalchemy.text("ALTER TABLE result RENAME TO gone"))
        yield from parts

    monkeypatch.setattr(export, "read_outcomes_of_run", read_what_goes)

    with pytest.raises(sqlalchemy.exc.ProgrammingError, match=r'relation "reelabel\.result" does not exist'):
        lake.export()


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_a_store_that_refuses_leaves_the_run_for_later(db, objects, store_settings, local, form):
    labelled(db, "d", "a", "b")
    with pytest.raises(ConfigurationError) as refused:
        Lake(db, objects, store_settings, "s3://no-such-bucket-here/lake", form).export()
    assert refused.value.message.isprintable()
    assert "[0m" not in refused.value.message

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


@pytest.mark.parametrize("given", [{"export_format": "iceberg"}, {"iceberg_namespace": "lake.reelabel"}])
def test_a_namespace_and_its_format_go_together(given):
    with pytest.raises(ValueError, match="set both or neither"):
        ResultsSettings(export_uri="s3://lake/rows", **given)
