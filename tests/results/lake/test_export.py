"""The rows of each ended run are written to a lake once."""

import json
import os
from dataclasses import replace
from uuid import uuid4

import deltalake
import polars as pl
import pytest

from infra.processes import free_port
from reelabel.options import reveal
from tasks.plans.plan import close_plan
from tasks.results.lake import export
from tasks.results.runs import cancel_run, close_run, open_run, record_heartbeat
from tasks.results.write import RunKey, ShardWriter
from tests.results import test_descriptions
from tests.results.lake.conftest import ODD, Lake, labelled
from tests.results.rows import FACTS, SPEC, job, result


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


def test_rows_of_a_dataset_with_a_quote_are_replaced(db, local):
    key = labelled(db, "d's", "a", "b")
    assert local.export("d's") == 2
    close_run(db, key.run_id, state="done", message="")

    assert local.export("d's") == 2

    assert local.rows()["job_id"].to_list() == ["a", "b"]


def test_keys_of_the_store_are_used_without_variables_of_aws(db, objects, store_settings, monkeypatch):
    lake = Lake(db, objects, store_settings, f"{store_settings.uri}/lake", "delta")
    labelled(db, "d", "a", "b")
    variables = {"AWS_SESSION_TOKEN": "of another", "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{free_port()}"}
    with monkeypatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)

        assert lake.export() == 2

        assert variables.items() <= os.environ.items()
    assert len(lake.rows()) == 2


def test_without_keys_of_the_store_those_of_the_variables_are_used(db, objects, store_settings, monkeypatch):
    lake = Lake(db, objects, store_settings, f"{store_settings.uri}/lake", "delta")
    labelled(db, "d", "a", "b")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", reveal(store_settings.access_key_id))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", reveal(store_settings.secret_access_key))
    lake.store = replace(store_settings, access_key_id=None, secret_access_key=None)

    assert lake.export() == 2
