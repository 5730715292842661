"""Jobs of a run that are answered again: by id, by condition, with another spec."""

import re

import pytest
from sqlalchemy import select

from flows.runs import backfill
from reelabel.sources.object_store import ObjectStore
from tasks.database.tables import RUN
from tests.command_line import reelabel
from tests.flows.runs import count_labels, state_of

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("classify")]  # they share services, and the frames of a run


@pytest.fixture(scope="module")
def manifest_copy(manifest, own_services):
    """The same jobs in a file of their own, so that runs of the others do not see these."""
    objects, own = ObjectStore(own_services.store), manifest.replace("manifest.parquet", "again.parquet")
    objects.replace(own, objects.read(manifest))
    return own


@pytest.fixture(scope="module", autouse=True)
def answered(by_server, manifest_copy):
    run = reelabel(by_server, "classify", manifest_copy, "--dataset", "again")
    assert "Reconciled: 151 jobs = 144 labels + 7 failures." in run.stdout, run.stderr


def test_a_dry_run_says_what_would_be_asked_why_and_how_long_it_may_take(environment, manifest_copy):
    chosen = ["--manifest", manifest_copy, "--dataset", "again", "--dry-run"]

    named = reelabel(environment, "backfill", "--ids", "clip-0000-colour,gone", *chosen)
    forced = reelabel(environment, "backfill", "--ids", "clip-0000-colour,gone", "--force", *chosen)
    failed = reelabel(environment, "backfill", "--failed", "--limit", "3", *chosen)
    elsewise = reelabel(environment, "backfill", "--task", "colour", "--num-frames", "4", *chosen)

    assert "Would answer 1 job on 1 video of again." in named.stdout, named.stderr
    assert "Selected: 1 labelled, 1 video_missing." in named.stdout
    assert "Skipping 1 job already finished; turn on force to include those with a label." in named.stdout
    assert "Would answer 2 jobs on 2 videos" in forced.stdout
    assert "Would answer 3 jobs on 3 videos" in failed.stdout
    assert "Leaving out 4 jobs beyond the limit." in failed.stdout
    expected = r"Answering: about [\d.]+ \w+, by [\d,]+ jobs of past runs with this spec on \S+\."
    assert re.search(expected, failed.stdout)
    assert "Would answer 55 jobs on 55 videos" in elsewise.stdout
    assert "with the earlier spec (the new one may be slower) on" in elsewise.stdout


def test_a_backfill_says_why_it_has_nothing_to_ask(by_server, manifest_copy, own_services, engine):
    chosen = ["--manifest", manifest_copy, "--dataset", "again"]

    for selection in ("--ids=clip-0000-colour,clip-0001-shape", "--where=margin > 2"):
        assert reelabel(by_server, "backfill", selection, *chosen).returncode == 0

    with engine.connect() as connection:
        newest = select(RUN.c.run_id).where(RUN.c.kind == "backfill").order_by(RUN.c.started_at.desc()).limit(2)
        none, two = (state_of(own_services.prefect, run)["message"] for run in connection.execute(newest).scalars())
    assert two.startswith("Nothing to do: 2 chosen jobs have a valid label; turn on force to ask them again. ")
    assert none.startswith("Nothing to do: no job matches the selection. ")


@pytest.mark.usefixtures("prefect_api")
def test_the_form_of_a_backfill_has_a_dry_run(by_server, manifest_copy, monkeypatch):
    for name, value in by_server.items():
        monkeypatch.setenv(name, value)
    parameters = {"manifest": manifest_copy, "dataset": "again", "ids": ["clip-0000-colour"], "dry_run": True}

    state = backfill(**parameters, return_state=True)

    assert state.message.startswith("Would answer 0 jobs on 0 videos of again. Selects from and writes to spec ")
    assert " Selected: 1 labelled. Skipping 1 job" in state.message


def test_an_error_of_postgres_in_a_condition_is_one_sentence(environment, manifest_copy):
    chosen = ["--manifest", manifest_copy, "--dataset", "again", "--dry-run"]

    wrong = reelabel(environment, "backfill", "--where", "margn < 0.5", *chosen)

    assert wrong.returncode == 2
    message = 'Postgres cannot run the condition margn < 0.5: column "margn" does not exist.'
    assert message in wrong.stderr


def test_chosen_jobs_are_asked_again_as_before(by_server, manifest_copy, tmp_path, engine):
    path = tmp_path / "ids.txt"
    path.write_text("clip-0000-colour\nclip-0001-shape\n")
    chosen = ["--ids-file", str(path), "--force", "--manifest", manifest_copy, "--dataset", "again"]
    # Settings that changed since must not sneak in: they would make answers by another spec.
    changed = {"REELABEL_SAMPLING_NUM_FRAMES": "3", "REELABEL_MODEL_SYSTEM_PROMPT": "Be brief."}

    before = count_labels(engine, "again")
    again = reelabel(by_server | changed, "backfill", *chosen)

    assert "2 (2 labels, 0 failures)" in again.stdout, again.stderr
    assert "selected jobs only: Reconciled: 2 jobs = 2 labels + 0 failures." in again.stdout
    assert count_labels(engine, "again") == before


def test_a_new_spec_adds_rows_beside_the_old_ones(by_server, manifest_copy, engine):
    where = "state = 'labelled' AND margin > 0 AND job_id LIKE 'clip-000_-%'"
    chosen = ["--task", "colour", "--where", where, "--limit", "2", "--manifest", manifest_copy, "--dataset", "again"]

    before = count_labels(engine, "again")
    again = reelabel(by_server, "backfill", *chosen, "--num-frames", "5")

    assert "2 (2 labels, 0 failures)" in again.stdout, again.stdout + again.stderr
    assert count_labels(engine, "again") == before + 2
    audit = reelabel(by_server, "audit", "last")
    assert "Selected jobs only: Reconciled: 2 jobs = 2 labels + 0 failures." in audit.stdout
    assert audit.returncode == 0


def test_unknown_ids_are_named_and_may_be_passed_over(environment, manifest_copy, tmp_path):
    unknown = ",".join(f"nobody-{number}" for number in range(9))
    home = {"REELABEL_HOME": str(tmp_path / "home")}
    path = tmp_path / "ids.txt"
    path.write_text("\n".join([*unknown.split(","), "gone"]), encoding="utf-8-sig")  # as spreadsheets do
    chosen = ["--ids-file", str(path), "--manifest", manifest_copy, "--dataset", "again"]

    refused = reelabel(environment | home, "backfill", *chosen)
    passed = reelabel(environment | home, "backfill", *chosen, "--skip-unknown", "--dry-run")

    assert refused.returncode == 2
    assert "9 job ids are not in the manifest, such as nobody-0, nobody-1" in refused.stderr
    assert (tmp_path / "home/unknown-ids.txt").read_text().split() == unknown.split(",")
    assert "Would answer 1 job on 1 video of again." in passed.stdout
    assert "9 job ids are not in the manifest, such as nobody-0, nobody-1" in passed.stdout
