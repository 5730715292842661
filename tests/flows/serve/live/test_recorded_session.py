"""A session from end to end: served, sent a file by the client, recorded, shown as a page, and replayed offline."""

import re

import pytest
from sqlalchemy import select

from infra.database.connect import connect
from tasks.database.live_tables import LIVE_QUERY
from tasks.database.tables import RESULT
from tasks.demo.clips import make_demo
from tests.command_line import reelabel as run_command
from tests.flows.serve.served import serving

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A job of the demo, whose clip is in a folder."""
    folder = tmp_path_factory.mktemp("demo")
    row = make_demo(folder, seed=7, clips=1, uri_prefix="videos").row(0, named=True)
    return row | {"path": folder / row["video_uri"].removeprefix("videos/")}


@pytest.fixture(scope="module")
def shown(own_environment, job):
    """What the client printed of a session that was shown the clip."""
    choices = "|".join(job["choices"])  # as in manifests; commas are tested elsewhere
    with serving(own_environment | {"REELABEL_SERVE_LOAD": '["live"]'}) as served:
        command = (
            "live",
            str(job["path"]),
            "--fps",
            "24",
            "--ask",
            job["prompt"],
            "--choices",
            choices,
            "--url",
            served.url,
        )
        return run_command(own_environment, *command)


@pytest.fixture(scope="module")
def rows(own_services, shown):
    """A function that reads all rows of a table."""
    assert shown.returncode == 0, shown.stdout + shown.stderr
    engine = connect(own_services.database)

    def rows(table):
        with engine.connect() as connection:
            return connection.execute(select(table)).mappings().all()

    yield rows
    engine.dispose()


def test_the_answer_that_the_client_printed_has_its_row(rows, shown, job):
    [query] = rows(LIVE_QUERY)

    assert f"{query['answer']} ({max(query['probabilities']):.3f})" in shown.stdout
    assert (query["question"], query["choices"]) == (job["prompt"], list(job["choices"]))
    assert len(query["frames"]) > 16, "more than classify shows by default"
    assert re.search(r"1 of 1 question answered: first token after \d+ ms", shown.stdout)


@pytest.mark.usefixtures("rows")
def test_the_session_has_a_page(own_environment, tmp_path, job):
    page = tmp_path / "session.html"

    run = run_command(own_environment, "report", "--session", "last", "--out", str(page))

    assert run.returncode == 0, run.stderr
    assert job["prompt"] in page.read_text()
    assert "<img" in page.read_text()
    refused = run_command(own_environment, "report", "--session", "zzz")
    assert (refused.returncode, "No live sessions match 'zzz'; use one of the latest: " in refused.stderr) == (2, True)


def test_only_the_missing_model_is_reported(own_environment, rows, tmp_path):
    run = run_command(own_environment, "classify", "--session", "last", "--model", str(tmp_path / "gone"))

    assert (run.returncode, run.stdout) == (2, ""), run.stderr
    assert str(tmp_path / "gone") in run.stderr
    assert rows(RESULT) == []


def test_its_questions_are_asked_again_offline_and_shown_beside_the_first_answers(own_environment, tmp_path, rows):
    run = run_command(own_environment, "classify", "--session", "last")

    assert run.returncode == 0, run.stdout + run.stderr
    assert "1 question of the session to replay." in run.stdout
    [query], [result] = rows(LIVE_QUERY), rows(RESULT)
    assert (result["job_id"], result["dataset"]) == (f"query-{query['query']}", f"live-{query['session_id']}")
    assert (result["prompt_tokens"], result["frames_used"]) == (query["prompt_tokens"], len(query["frames"]))
    assert result["probabilities"] == pytest.approx(query["probabilities"], abs=1e-6)
    page = tmp_path / "session.html"
    run_command(own_environment, "report", "--session", "last", "--out", str(page))
    assert f"<b>{result['label']}</b> (margin {result['margin']:.3f})" in page.read_text()
    conflict = run_command(own_environment, "classify", "jobs.parquet", "--session", "last")
    assert (conflict.returncode, "--session takes no manifest" in conflict.stderr) == (2, True)
