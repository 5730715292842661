"""A run by a real engine in a process of its own: its labels, its artifacts, and what it says of itself."""

import json
import re

import pytest
from sqlalchemy import func, select

from reelabel.sources.object_store import ObjectStore
from tasks.database.tables import RESULT, RUN
from tasks.domain import RunPhase
from tests.command_line import reelabel
from tests.flows.runs import artifact_of

pytestmark = pytest.mark.xdist_group("classify")  # they share a run


def test_every_job_ends_as_a_label_or_an_explained_failure(environment, first_run, run_id):
    assert "Reconciled: 151 jobs = 144 labels + 7 failures." in first_run.stdout, first_run.stderr
    assert first_run.returncode == 1  # finished, with failures

    audit = reelabel(environment, "audit", str(run_id), "--json")
    report = json.loads(audit.stdout)
    assert audit.returncode == 0
    assert (report["jobs"], report["labels"], report["failures"], report["doubled"]) == (151, 144, 7, 0)
    assert report["codes"] == {"video_missing": 2, "video_refused": 2, "video_unreadable": 2, "video_empty": 1}


def test_the_artifacts_of_a_run_list_its_failed_jobs(own_services, run_id):
    failed = json.loads(artifact_of(own_services.prefect, run_id, "reelabel-failures"))

    assert len(failed) == 7
    assert failed == sorted(failed, key=lambda row: row["job_id"])
    gone = next(row for row in failed if row["code"] == "video_missing")
    assert "There is no video at" in gone["message"]


def test_labels_are_right(environment, run_id):
    printed = reelabel(environment, "results", str(run_id), "--format", "json").stdout

    rows = [row for row in json.loads(printed) if row["label"] is not None]
    right = sum(row["label"] == row["answer"] for row in rows)
    assert len(rows) == 144
    assert right / len(rows) > 0.95
    assert all(abs(sum(row["probabilities"]) - 1) < 1e-6 for row in rows)


def test_a_run_says_where_its_time_went_and_says_it_again_later(first_run, run_id, environment, engine, own_services):
    with engine.connect() as connection:
        run = connection.execute(select(RUN).where(RUN.c.run_id == run_id)).mappings().one()
        tokens = connection.execute(
            select(func.sum(RESULT.c.prompt_tokens), func.sum(RESULT.c.cached_tokens)).where(
                RESULT.c.dataset == "first"
            )
        ).one()
    wall_s = (run["ended_at"] - run["started_at"]).total_seconds()
    assert sum(run["wall_ms"].values()) / 1e3 == pytest.approx(wall_s, rel=0.05, abs=1)
    assert {"engine start", "answer", "database", "audit"} <= run["wall_ms"].keys() <= set(RunPhase)
    assert tokens == (run["prompt_tokens"], run["cached_tokens"])
    assert 0 < run["cached_tokens"] < run["prompt_tokens"]
    assert run["gpus"] == 0
    assert run["coverage"] == {"videos": 48}  # all of whose keyframes are enough

    later = reelabel(environment, "results", str(run_id)).stdout
    published = artifact_of(own_services.prefect, run_id, "reelabel-how-to-read")
    for shown in (first_run.stdout, later, published):
        assert f"{run['jobs_per_hour_held']:,.0f} per engine-hour held" in shown
        assert f"{run['prompt_tokens']:,} prompt tokens" in shown
        assert run["bottleneck"] in " ".join(shown.replace("│", " ").split())


def test_a_run_links_to_its_page_where_browsers_find_it(run_id, own_services):
    prefect, link = own_services.prefect, f"https://pages.example/runs/{run_id}.html"

    assert f"]({link})" in artifact_of(prefect, run_id, "reelabel-page")
    assert f"or [open it here]({link})" in artifact_of(prefect, run_id, "reelabel-how-to-read")
    page = ObjectStore(own_services.store).read(f"{own_services.store.uri}/reports/{run_id}.html")
    assert page.startswith(b"<!doctype html>")


@pytest.mark.system  # imports vLLM in a process of its own
@pytest.mark.usefixtures("first_run")
def test_the_printed_prompt_has_as_many_tokens_as_the_engine_took(environment, manifest, engine):
    shown = reelabel(environment, "prompt", "clip-0000-colour", "--manifest", manifest, "--permutations", "2").stdout

    of_job = (RESULT.c.dataset == "first", RESULT.c.job_id == "clip-0000-colour")
    with engine.connect() as connection:
        taken = connection.execute(select(RESULT.c.prompt_tokens).where(*of_job)).scalar_one()
    assert f"{taken} tokens: " in shown
    assert re.search(r"<\|vision_start\|><\|video_pad\|>\(x\d+\)<\|vision_end\|>", shown)
    assert "Choices are shown in 2 orders; this is the first." in shown
