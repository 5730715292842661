import subprocess
import sys
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
import sqlalchemy

from reelabel.errors import ConfigurationError
from reelabel.sampling.options import Sampling
from tasks.domain import RunSpec
from tasks.results.overview import list_runs, list_unrepaired_runs
from tasks.results.runs import (
    add_versions,
    cancel_run,
    close_lost_runs,
    close_run,
    find_reference,
    is_partial_run,
    list_other_specs,
    mark_reference,
    newest_run,
    open_run,
    read_run,
    record_heartbeat,
    require_only_spec,
    run_states,
    update_run,
)
from tests.results.rows import FACTS, SPEC


def silence(db, run, minutes):
    with db.begin() as connection:
        connection.execute(
            sqlalchemy.text("UPDATE reelabel.run SET seen_at = now() - make_interval(mins => :m) WHERE run_id = :id"),
            {"m": minutes, "id": run.run_id},
        )


def states(db):
    return run_states(db, "m.parquet", since=datetime.now(UTC) - timedelta(hours=1))


def test_a_run_without_a_heartbeat_is_lost_and_is_closed(db, run):
    silence(db, run, minutes=4)
    assert states(db) == {"running"}
    assert close_lost_runs(db) == 0
    silence(db, run, minutes=6)
    assert states(db) == {"lost"}  # before its row is closed

    assert close_lost_runs(db) == 1

    row = read_run(db, run.run_id)
    assert (row["state"], row["ended_at"]) == ("lost", row["seen_at"])
    assert "start it again to continue" in row["message"]


def test_a_run_counts_what_it_has_to_answer_and_what_has_ended(db, run):
    open_run(db, run_id=run.run_id, spec=SPEC, facts=FACTS | {"jobs_total": 10, "jobs_skipped": 4})
    update_run(db, run.run_id, jobs_labelled=2, jobs_failed=1)

    [listed] = list_runs(db, limit=1)

    assert (listed.jobs, listed.ended, listed.failed) == (6, 3, 1)
    assert listed.remaining_s == pytest.approx(listed.elapsed_s)


def test_a_run_whose_process_was_killed_is_lost_at_once(db, run):
    code = "from infra.processes import own_process; print(own_process(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as own:
        open_run(db, run_id=run.run_id, spec=SPEC, facts=FACTS | {"process": own.stdout.readline().strip()})
        assert [each.state for each in list_runs(db, limit=1)] == ["running"]
        own.kill()

    [listed] = list_runs(db, limit=1)
    assert listed.state == "lost"
    assert "start it again to continue" in listed.message
    assert states(db) == {"lost"}
    assert close_lost_runs(db) == 1


def test_a_run_of_another_machine_is_lost_by_its_heartbeat_alone(db, run):
    open_run(db, run_id=run.run_id, spec=SPEC, facts=FACTS | {"process": "another-boot pid:[1] 1 1"})

    assert states(db) == {"running"}


def test_a_failed_run_is_listed_until_its_manifest_is_finished(db, run):
    week = timedelta(days=7)
    close_run(db, run.run_id, state="failed", message="Postgres failed.")
    assert [each.message for each in list_unrepaired_runs(db, within=week)] == ["Postgres failed."]

    for other in ({"kind": "backfill"}, {"dataset": "other"}, {"manifest_uri": "other.parquet"}):
        elsewhere = uuid4()
        open_run(db, run_id=elsewhere, spec=SPEC, facts=FACTS | other)
        close_run(db, elsewhere, state="done", message="Reconciled.")
    again = uuid4()
    open_run(db, run_id=again, spec=SPEC, facts=FACTS)
    assert len(list_unrepaired_runs(db, within=week)) == 1
    close_run(db, again, state="done", message="Reconciled.")

    assert list_unrepaired_runs(db, within=week) == []


def test_backfills_are_not_among_the_runs_of_a_manifest(db):
    facts = FACTS | {"manifest_uri": "other.parquet"}
    open_run(db, run_id=uuid4(), spec=SPEC, facts=facts | {"kind": "backfill"})
    since = datetime.now(UTC) - timedelta(hours=1)

    assert run_states(db, "other.parquet", since=since) == set()

    open_run(db, run_id=uuid4(), spec=SPEC, facts=facts)
    assert run_states(db, "other.parquet", since=since) == {"running"}
    assert run_states(db, "other.parquet", since=since + timedelta(hours=2)) == set()


def test_a_backfill_is_partial_until_a_run_of_its_dataset_has_its_spec(db, run):
    elsewhere, backfill = FACTS | {"dataset": "other", "manifest_uri": "other.parquet"}, uuid4()
    open_run(db, run_id=backfill, spec=SPEC, facts=elsewhere | {"kind": "backfill"})

    assert newest_run(db, manifest_uri=None, dataset=None)["run_id"] == backfill
    assert newest_run(db, manifest_uri="m.parquet", dataset=None)["run_id"] == run.run_id
    assert newest_run(db, manifest_uri=None, dataset="d")["run_id"] == run.run_id
    assert newest_run(db, manifest_uri="m.parquet", dataset="other") is None
    assert is_partial_run(db, read_run(db, backfill))
    assert not is_partial_run(db, read_run(db, run.run_id))
    open_run(db, run_id=uuid4(), spec=SPEC, facts=elsewhere)
    assert not is_partial_run(db, read_run(db, backfill))


def test_backfills_take_the_spec_of_the_last_whole_run_or_of_the_one_that_was_marked(db, run):
    other = RunSpec(model=SPEC.model, sampling=Sampling(sampler="uniform", num_frames=8))
    trial, elsewhere = UUID(int=8), UUID(int=9)

    def reference():
        return find_reference(db, manifest_uri="m.parquet", dataset="d")["run_id"]

    open_run(db, run_id=elsewhere, spec=other, facts=FACTS | {"dataset": "other"})
    open_run(db, run_id=trial, spec=other, facts=FACTS | {"kind": "backfill"})
    assert reference() == run.run_id
    assert find_reference(db, manifest_uri="m.parquet", dataset=None)["run_id"] == elsewhere
    assert find_reference(db, manifest_uri="gone.parquet", dataset=None) is None
    assert [each["spec_id"] for each in list_other_specs(db, read_run(db, run.run_id), limit=5)] == [other.spec_id]

    for marked in (run.run_id, trial):
        mark_reference(db, marked, is_reference=True)
        assert reference() == marked
    open_run(db, run_id=uuid4(), spec=SPEC, facts=FACTS)
    assert reference() == trial
    mark_reference(db, trial, is_reference=False)
    assert reference() == run.run_id


def test_a_run_that_has_ended_is_not_cancelled(db, run):
    close_run(db, run.run_id, state="done", message="Reconciled.")

    cancel_run(db, run.run_id)

    assert read_run(db, run.run_id)["state"] == "done"


def test_a_heartbeat_revives_a_lost_run(db, run):
    silence(db, run, minutes=6)
    close_lost_runs(db)

    record_heartbeat(db, run.run_id)

    row = read_run(db, run.run_id)
    assert (row["state"], row["ended_at"]) == ("running", None)


def test_a_heartbeat_does_not_revive_an_ended_run(db, run):
    close_run(db, run.run_id, state="done", message="Reconciled.")
    silence(db, run, minutes=6)

    record_heartbeat(db, run.run_id)

    assert close_lost_runs(db) == 0
    assert read_run(db, run.run_id)["state"] == "done"


def test_a_restarted_run_is_running_and_keeps_the_versions_that_workers_have_added(db, run):
    add_versions(db, run.run_id, {"reelabel": "1", "vllm": "2"})
    silence(db, run, minutes=6)
    close_lost_runs(db)

    open_run(db, run_id=run.run_id, spec=SPEC, facts=FACTS | {"versions": {"reelabel": "3"}})

    assert states(db) == {"running"}
    assert read_run(db, run.run_id)["versions"] == {"reelabel": "3", "vllm": "2"}


def test_the_only_way_in_which_a_manifest_was_answered_is_found_and_several_are_named(db, run):
    assert require_only_spec(db, "m.parquet")["run_id"] == run.run_id
    with pytest.raises(ConfigurationError, match=r"No run of other\.parquet has been started"):
        require_only_spec(db, "other.parquet")

    other = RunSpec(model=SPEC.model, sampling=Sampling(sampler="uniform", num_frames=32))
    open_run(db, run_id=UUID(int=9), spec=other, facts=FACTS)

    with pytest.raises(ConfigurationError, match=r"was answered in 2 ways; name one: .*uniform, 32 frames"):
        require_only_spec(db, "m.parquet")
