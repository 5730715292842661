"""The rows of each ended run are written to a lake once, however often an attempt fails."""

import json
from uuid import uuid4

import polars as pl
import pytest

from reelabel.errors import ConfigurationError
from tasks.results import export
from tasks.results.export import export_ended_runs
from tasks.results.runs import cancel_run, close_run, open_run, record_heartbeat
from tasks.results.write import RunKey, ShardWriter
from tests.plans.conftest import make_plan
from tests.results import test_descriptions
from tests.results.rows import FACTS, SPEC, failure, job, result

__all__ = ["make_plan"]

ODD = "clips/ä %41=1"


def labelled(db, dataset, *names, state="done"):
    """A run that has labelled all but the last of some jobs, which has failed."""
    key = RunKey(run_id=uuid4(), dataset=dataset, spec_id=SPEC.spec_id, host="h")
    open_run(db, run_id=key.run_id, spec=SPEC, facts=FACTS | {"dataset": dataset})
    *done, failed = (job(name) for name in names)
    ShardWriter(db, key).write([result(each, (1 / 3, 2 / 3)) for each in done], [failure(failed)])
    if state != "running":
        close_run(db, key.run_id, state=state, message="")
    return key


@pytest.fixture(params=["folder", "s3"])
def target(request, tmp_path, store_settings):
    return (
        f"file://{tmp_path}/a lake".replace(" ", "%20") if request.param == "folder" else f"{store_settings.uri}/lake"
    )


def files_at(objects, target):
    return sorted(found.uri for found in objects.list(target))


def test_every_run_is_exported_once_and_listed_with_its_files(db, objects, target):
    first, second = labelled(db, ODD, "a", "b", "c"), labelled(db, ODD, "d", "e", state="failed")
    labelled(db, "other", "a", "b")
    labelled(db, ODD, "x", "y", state="running")

    assert export_ended_runs(db, objects, target, dataset=ODD) == 5
    assert export_ended_runs(db, objects, target, dataset=ODD) == 0

    listed = [json.loads(objects.read(f"{target}/runs/{key.run_id}.json")) for key in (first, second)]
    assert [each["files"][0]["rows"] for each in listed] == [3, 2]
    assert len(files_at(objects, target)) == 4
    rows = pl.read_parquet(objects.read(listed[0]["files"][0]["uri"]))
    assert rows.select("job_id", "label", "code").rows() == [
        ("a", "no", None),
        ("b", "no", None),
        ("c", None, "no_frames"),
    ]


def test_a_folder_is_read_by_its_partitions(db, objects, tmp_path):
    labelled(db, ODD, "a", "b")
    labelled(db, "plain", "a", "b", "c")
    for dataset in (ODD, "plain"):
        export_ended_runs(db, objects, f"file://{tmp_path}", dataset=dataset)

    rows = pl.read_parquet(f"{tmp_path}/labels/**/*.parquet", hive_partitioning=True)

    assert rows.group_by("dataset").len().sort("dataset").rows() == [(ODD, 2), ("plain", 3)]
    assert rows["date"].dtype == pl.Date


def test_an_attempt_that_failed_is_made_again_and_leaves_nothing_behind(db, objects, target, monkeypatch):
    key = labelled(db, "d", "a", "b", "c")
    monkeypatch.setattr(export, "_FILE_BYTES", 1)
    monkeypatch.setattr("tasks.results.read._ROWS_PER_PART", 1)
    with monkeypatch.context() as patch:
        patch.setattr(export, "update", lambda *_: pytest.fail("The process is killed."))
        with pytest.raises(pytest.fail.Exception):
            export_ended_runs(db, objects, target, dataset="d")
    before = files_at(objects, target)
    monkeypatch.undo()

    assert export_ended_runs(db, objects, target, dataset="d") == 3

    assert len(before) == 4
    assert len(files_at(objects, target)) == 2
    assert len(json.loads(objects.read(f"{target}/runs/{key.run_id}.json"))["files"]) == 1


def test_a_run_whose_plan_others_continue_waits_for_its_end(db, objects, run, make_plan, tmp_path):
    ShardWriter(db, run).write([result(job("a"))], [])
    plan = make_plan()
    close_run(db, run.run_id, state="lost", message="")
    assert export_ended_runs(db, objects, f"{tmp_path}", dataset="d") == 0

    from tasks.plans.plan import close_plan  # noqa: PLC0415

    close_plan(db, plan.plan_id, state="done")
    assert export_ended_runs(db, objects, f"{tmp_path}", dataset="d") == 1


def test_a_run_that_starts_again_is_exported_again(db, objects, tmp_path):
    key = labelled(db, "d", "a", "b")
    assert export_ended_runs(db, objects, f"{tmp_path}", dataset="d") == 2

    open_run(db, run_id=key.run_id, spec=SPEC, facts=FACTS)
    ShardWriter(db, key).write([result(job("c"))], [])
    close_run(db, key.run_id, state="done", message="")

    assert export_ended_runs(db, objects, f"{tmp_path}", dataset="d") == 3
    assert len(pl.read_parquet(f"{tmp_path}/labels/**/*.parquet")) == 3


def test_a_run_that_was_thought_lost_and_went_on_is_exported_at_its_end(db, objects, tmp_path):
    key = labelled(db, "d", "a", "b", state="lost")
    assert export_ended_runs(db, objects, f"{tmp_path}", dataset="d") == 2

    record_heartbeat(db, key.run_id)
    ShardWriter(db, key).write([result(job("c"))], [])
    assert export_ended_runs(db, objects, f"{tmp_path}", dataset="d") == 0
    cancel_run(db, key.run_id)

    assert export_ended_runs(db, objects, f"{tmp_path}", dataset="d") == 3


def test_the_list_of_a_run_has_no_signature_of_its_manifest(db, objects, tmp_path):
    key = RunKey(run_id=uuid4(), dataset="d", spec_id=SPEC.spec_id, host="h")
    signed = "https://user:word@h/jobs.parquet?X-Amz-Signature=abcdef"
    open_run(db, run_id=key.run_id, spec=SPEC, facts=FACTS | {"manifest_uri": signed})
    close_run(db, key.run_id, state="done", message="")

    export_ended_runs(db, objects, f"{tmp_path}", dataset="d")

    listed = (tmp_path / "runs" / f"{key.run_id}.json").read_text()
    assert "jobs.parquet" in listed
    assert "abcdef" not in listed
    assert "word" not in listed


def test_descriptions_are_a_table_of_their_own(db, objects, tmp_path):
    spec = test_descriptions.SPEC
    videos = RunKey(run_id=uuid4(), dataset="d", spec_id=spec.spec_id, host="h")
    open_run(db, run_id=videos.run_id, spec=spec, facts=FACTS | {"kind": "describe"})
    test_descriptions.write(db, videos, test_descriptions.described(test_descriptions.film("a")))
    close_run(db, videos.run_id, state="done", message="")

    assert export_ended_runs(db, objects, f"{tmp_path}", dataset="d") == 1

    assert "tags" in pl.read_parquet(f"{tmp_path}/descriptions/**/*.parquet").columns


def test_a_store_that_refuses_leaves_the_run_for_later(db, objects, tmp_path):
    labelled(db, "d", "a", "b")
    with pytest.raises(ConfigurationError):
        export_ended_runs(db, objects, "s3://no-such-bucket-here/lake", dataset="d")

    assert export_ended_runs(db, objects, f"{tmp_path}", dataset="d") == 2
