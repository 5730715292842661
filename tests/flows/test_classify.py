import json
import os
import re
import signal
import subprocess
import sys
import time

import httpx
import polars as pl
import pytest
from annotated_types import Ge
from sqlalchemy import func, select

from infra.database import connect
from infra.embedded import export
from infra.login import login_headers
from infra.objects import ObjectStore
from infra.settings import DatabaseSettings
from tasks.demo.clips import make_demo
from tasks.domain import Part
from tasks.model.identity import TINY_MODEL
from tasks.results.tables import RESULT, RUN
from tests.held_writes import only_first_rows_of
from tests.vllm_server import KEY


@pytest.fixture(scope="module")
def environment(prefect_services):
    settings = {"REELABEL_SHARD_TARGET_JOBS": "50", "REELABEL_SHARD_LEASE_S": "5", "REELABEL_MODEL_DTYPE": "float32"}
    settings |= {"REELABEL_REPORT_BASE_URL": "https://pages.example/runs/"}
    return os.environ | export(prefect_services) | settings | {"COLUMNS": "160"}


@pytest.fixture(scope="module")
def engine(prefect_services):
    engine = connect(prefect_services.database)
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def manifest(tmp_path_factory, prefect_services):
    """A manifest on S3, enough for three shards: 48 clips, and seven jobs whose videos are bad."""
    folder = tmp_path_factory.mktemp("demo")
    root = f"{prefect_services.store.uri}/demo"
    good = make_demo(folder, seed=77, clips=48, uri_prefix=root)
    (folder / "empty.mp4").touch()
    (folder / "text.mp4").write_text("no video")
    cut = (folder / good["video_uri"][0].rpartition("/")[2]).read_bytes()[:100]
    (folder / "cut.mp4").write_bytes(cut)
    refused = {"host": "file://host/x.mp4", "bucket": "s3://nobody/x.mp4", "long": "/" + "x" * 300}
    bad_uris = {name: f"{root}/{name}.mp4" for name in ("empty", "text", "cut", "gone")} | refused
    bad = (
        good.head(1)
        .select(pl.exclude("job_id", "video_uri"))
        .join(pl.DataFrame({"job_id": list(bad_uris), "video_uri": list(bad_uris.values())}), how="cross")
    )
    pl.concat([good, bad.select(good.columns)]).write_parquet(folder / "manifest.parquet")
    objects = ObjectStore(prefect_services.store)
    for path in folder.iterdir():
        objects.replace(f"{root}/{path.name}", path.read_bytes())
    return f"{root}/manifest.parquet"


def reelabel(environment, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def labels(engine, dataset):
    with engine.connect() as connection:
        return connection.execute(select(func.count()).where(RESULT.c.dataset == dataset)).scalar_one()


@pytest.fixture(scope="module")
def first_run(environment, manifest):
    return reelabel(environment, "classify", manifest, "--dataset", "first")


def test_every_job_ends_as_a_label_or_an_explained_failure(environment, first_run):
    assert "Reconciled: 151 jobs = 144 labels + 7 failures." in first_run.stdout, first_run.stderr
    assert first_run.returncode == 1  # finished, with failures

    audit = reelabel(environment, "audit", "last", "--json")
    report = json.loads(audit.stdout)
    assert audit.returncode == 0
    assert (report["jobs"], report["labels"], report["failures"], report["doubled"]) == (151, 144, 7, 0)
    assert report["codes"] == {"video_missing": 2, "video_refused": 2, "video_unreadable": 2, "video_empty": 1}


@pytest.mark.usefixtures("first_run")
def test_labels_are_right(environment):
    printed = reelabel(environment, "results", "last", "--format", "json").stdout

    rows = [row for row in json.loads(printed) if row["label"] is not None]
    right = sum(row["label"] == row["answer"] for row in rows)
    assert len(rows) == 144
    assert right / len(rows) > 0.95
    assert all(abs(sum(row["probabilities"]) - 1) < 1e-6 for row in rows)


def test_a_run_says_where_its_time_went_and_says_it_again_later(first_run, environment, engine, prefect_services):
    with engine.connect() as connection:
        run = connection.execute(select(RUN).where(RUN.c.dataset == "first")).mappings().one()
        tokens = connection.execute(
            select(func.sum(RESULT.c.prompt_tokens), func.sum(RESULT.c.cached_tokens)).where(
                RESULT.c.dataset == "first"
            )
        ).one()
    wall_s = (run["ended_at"] - run["started_at"]).total_seconds()
    assert sum(run["wall_ms"].values()) / 1e3 == pytest.approx(wall_s, rel=0.05)
    assert {"engine start", "answer", "database", "audit"} <= run["wall_ms"].keys() <= set(Part)
    assert tokens == (run["prompt_tokens"], run["cached_tokens"])
    assert 0 < run["cached_tokens"] < run["prompt_tokens"]
    assert run["gpus"] == 0
    assert run["verdicts"] == {"videos": 48}  # all of whose keyframes are enough

    later = reelabel(environment, "results", str(run["run_id"])).stdout
    prefect = prefect_services.prefect
    artifact_url = f"{prefect.api_url}/artifacts/reelabel-how-to-read/latest"
    published = httpx.get(artifact_url, headers=login_headers(prefect.auth_string)).json()["data"]
    for shown in (first_run.stdout, later, published):
        assert f"{run['jobs_per_hour_held']:,.0f} per engine-hour held" in shown
        assert f"{run['prompt_tokens']:,} prompt tokens" in shown
        assert run["bottleneck"] in " ".join(shown.replace("│", " ").split())


@pytest.mark.usefixtures("first_run")
def test_a_run_links_to_its_page_where_browsers_find_it(engine, prefect_services):
    with engine.connect() as connection:
        run_id = connection.execute(select(RUN.c.run_id).where(RUN.c.dataset == "first")).scalar_one()
    prefect, link = prefect_services.prefect, f"https://pages.example/runs/{run_id}.html"

    api = httpx.Client(base_url=f"{prefect.api_url}/artifacts/", headers=login_headers(prefect.auth_string))

    assert f"]({link})" in api.get("reelabel-page/latest").json()["data"]
    assert f"or [open it]({link})" in api.get("reelabel-how-to-read/latest").json()["data"]
    page = ObjectStore(prefect_services.store).read(f"{prefect_services.store.uri}/reports/{run_id}.html")
    assert page.startswith(b"<!doctype html>")


@pytest.mark.usefixtures("first_run")
def test_probabilities_are_calibrated_on_known_answers_beside_the_raw_ones(environment, manifest):
    refused = reelabel(environment, "results", "last", "--calibrated")
    assert refused.returncode == 2
    assert "has no calibration; `reelabel calibrate MANIFEST` makes one" in refused.stderr
    raw = json.loads(reelabel(environment, "results", "last", "--format", "json").stdout)

    fitted = json.loads(reelabel(environment, "calibrate", manifest, "--json").stdout)
    shown = reelabel(environment, "calibrate", manifest, "--run", "last").stdout

    assert (fitted["jobs"], fitted["bins"], fitted["dataset"]) == (144, 15, "first")
    assert f"Temperature {fitted['temperature']:.3f}; fitted on each half alone" in shown
    rows = json.loads(reelabel(environment, "results", "last", "--calibrated", "--format", "json").stdout)
    assert [row["probabilities"] for row in rows] == [row["probabilities"] for row in raw]
    labelled = [row for row in rows if row["label"] is not None]
    assert all(abs(sum(row["calibrated_probabilities"]) - 1) < 1e-6 for row in labelled)
    assert all(row["confidence"] == max(row["calibrated_probabilities"]) for row in labelled)
    assert all(row["confidence"] is None for row in rows if row["label"] is None)
    csv = reelabel(environment, "results", "last", "--calibrated", "--format", "csv").stdout
    assert csv.splitlines()[0].endswith("stage,code,message,attempts,calibrated_probabilities,confidence")


@pytest.mark.usefixtures("first_run")
def test_choices_in_every_order_are_averaged_and_their_bias_told(environment, manifest, prefect_services, tmp_path):
    objects = ObjectStore(prefect_services.store)
    few = pl.read_parquet(objects.read(manifest)).head(9)
    few.write_parquet(tmp_path / "few.parquet")

    run = reelabel(environment, "classify", str(tmp_path / "few.parquet"), "--permutations", "4")

    assert "Reconciled: 9 jobs = 9 labels + 0 failures." in run.stdout, run.stderr
    assert re.search(r"of 9 jobs, content decided [\d.]+%, position [\d.]+%", run.stdout)
    rows = json.loads(reelabel(environment, "results", "last", "--format", "json").stdout)
    assert {row["permutations"] for row in rows} == {4}
    assert all(row["cached_tokens"] >= 3 * 32 for row in rows)  # a block of the video in all orders but the first
    # The demo's model was trained with its choices in one order: it knows letters, and is found out.
    assert any(row["same_position"] for row in rows)


@pytest.mark.usefixtures("first_run")
def test_a_server_gives_the_labels_of_an_engine_of_our_own(
    environment, manifest, prefect_services, engine, vllm_server, tmp_path
):
    few = pl.read_parquet(ObjectStore(prefect_services.store).read(manifest)).head(9)
    few.write_parquet(tmp_path / "few.parquet")
    server = {"MODEL_BACKEND": "openai", "MODEL_NAME": TINY_MODEL, "SERVER_URL": vllm_server, "SERVER_API_KEY": KEY}
    served = environment | {f"REELABEL_{name}": str(value) for name, value in server.items()}

    run = reelabel(served, "classify", str(tmp_path / "few.parquet"), "--dataset", "served")

    assert "Reconciled: 9 jobs = 9 labels + 0 failures." in run.stdout, run.stderr
    columns = select(RESULT.c.job_id, RESULT.c.spec_id, RESULT.c.label, RESULT.c.probabilities)
    with engine.connect() as connection:
        rows, own = (
            {row.job_id: row for row in connection.execute(columns.where(RESULT.c.dataset == dataset))}
            for dataset in ("served", "first")
        )
    for job_id, row in rows.items():
        assert (row.label, row.spec_id) == (own[job_id].label, own[job_id].spec_id)
        assert row.probabilities == pytest.approx(own[job_id].probabilities, abs=1e-4)


@pytest.mark.usefixtures("first_run")
def test_the_second_time_nothing_is_extracted_and_nothing_asked(environment, manifest, prefect_services):
    log = prefect_services.home / "logs/engine.log"
    before = log.read_bytes()

    nightly = manifest.replace("manifest.parquet", "{scheduled_date:manifest}.parquet")
    again = reelabel(environment, "classify", nightly, "--dataset", "first")

    assert "151 (151 ended before)" in again.stdout, again.stderr
    assert "0 (0 labels, 0 failures)" in again.stdout
    assert "0 extracted, 0 from the cache" in again.stdout
    assert log.read_bytes() == before  # no engine was started
    ended_well = {"state": {"type": {"any_": ["COMPLETED"]}}}
    query = {"sort": "END_TIME_DESC", "flow_runs": ended_well, "limit": 1}
    prefect = prefect_services.prefect
    runs = httpx.post(f"{prefect.api_url}/flow_runs/filter", json=query, headers=login_headers(prefect.auth_string))
    newest = runs.json()[0]["state"]
    assert newest["message"].startswith("Nothing was left to ask. Reconciled: 151 jobs")


def test_a_run_killed_in_the_middle_goes_on_where_it_was(environment, manifest, engine, prefect_services):
    with only_first_rows_of("killed", prefect_services.database):
        killed = subprocess.Popen(
            [sys.executable, "-m", "flows.cli", "classify", manifest, "--dataset", "killed"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 200
        while labels(engine, "killed") == 0 and killed.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
    before = labels(engine, "killed")
    assert 0 < before < 144

    again = reelabel(environment, "classify", manifest, "--dataset", "killed")

    ended_before = int(re.search(r"151 \((\d+) ended before\)", again.stdout)[1])
    assert before <= ended_before <= before + 7  # a shard's failures ended with its labels
    assert "Reconciled: 151 jobs = 144 labels + 7 failures." in again.stdout


def test_the_fewest_connections_that_may_be_set_are_enough(environment, manifest):
    (fewest,) = (each.ge for each in DatabaseSettings.model_fields["pool_size"].metadata if isinstance(each, Ge))
    few = environment | {"REELABEL_DATABASE_POOL_SIZE": str(fewest), "REELABEL_DATABASE_CONNECT_TIMEOUT_S": "1"}

    run, again = (reelabel(few, "classify", manifest, "--dataset", "connections") for _ in range(2))

    for each in (run, again):
        assert "Reconciled: 151 jobs = 144 labels + 7 failures." in each.stdout, each.stderr


def test_a_manifest_of_the_same_name_does_not_replace_labels(environment, manifest, tmp_path):
    name = manifest.rpartition("/")[2]
    first = reelabel(environment, "classify", manifest)
    other = pl.DataFrame(
        {"job_id": ["clip-0000-colour"], "video_uri": ["x.mp4"], "prompt": ["?"], "choices": [["yes", "no"]]}
    )
    other.write_parquet(tmp_path / name)

    refused = [reelabel(environment, "classify", str(tmp_path / name), *options) for options in ([], ["--dataset", ""])]

    assert "Reconciled" in first.stdout
    for each in refused:
        assert each.returncode == 2
        assert "holds labels of another manifest for 1 of these job ids" in each.stderr


def test_a_bad_manifest_is_refused_before_anything_is_written(environment, tmp_path, engine):
    path = tmp_path / "bad.parquet"
    pl.DataFrame({"job_id": ["a", "a"], "video_uri": ["x", "y"], "prompt": ["?", "?"]}).write_parquet(path)

    refused = reelabel(environment, "classify", str(path))

    assert refused.returncode == 2
    assert "Column choices is missing." in refused.stderr
    assert "Traceback" not in refused.stderr
    assert labels(engine, "bad") == 0


def test_a_model_folder_without_weights_is_refused(environment, manifest, tmp_path):
    (tmp_path / "config.json").write_text("{}")

    refused = reelabel(environment, "classify", manifest, "--model", str(tmp_path))

    assert refused.returncode == 2
    assert "no weights" in refused.stderr


@pytest.mark.usefixtures("first_run")
class TestBackfill:
    def test_a_dry_run_says_what_would_be_asked_why_and_how_long_it_may_take(self, environment, manifest):
        chosen = ["--manifest", manifest, "--dataset", "first", "--dry-run"]

        named = reelabel(environment, "backfill", "--ids", "clip-0000-colour,gone", *chosen)
        forced = reelabel(environment, "backfill", "--ids", "clip-0000-colour,gone", "--force", *chosen)
        failed = reelabel(environment, "backfill", "--failed", "--limit", "3", *chosen)
        elsewise = reelabel(environment, "backfill", "--task", "colour", "--num-frames", "4", *chosen)

        assert "Would ask 1 job on 1 video of first." in named.stdout, named.stderr
        assert "Chosen: 1 labelled, 1 video_missing." in named.stdout
        assert "1 of the chosen have a valid label and are left alone; --force asks them, too." in named.stdout
        assert "Would ask 2 jobs on 2 videos" in forced.stdout
        assert "Would ask 3 jobs on 3 videos" in failed.stdout
        assert "4 more are over the limit." in failed.stdout
        expected = r"Expected: [\d.]+ minutes, for videos of [\d.]+ MB in all by the sizes of 48 past ones"
        assert re.search(rf"{expected}. It rests on [\d,]+ jobs of past runs by this spec on \S+\.", failed.stdout)
        assert "Would ask 55 jobs on 55 videos" in elsewise.stdout
        assert "by the earlier spec, where another may take longer, on" in elsewise.stdout

    def test_what_postgres_holds_against_a_where_is_said_in_a_sentence(self, environment, manifest):
        chosen = ["--manifest", manifest, "--dataset", "first", "--dry-run"]

        wrong = reelabel(environment, "backfill", "--where", "margn < 0.5", *chosen)

        assert wrong.returncode == 2
        said = 'Postgres cannot run --where: column "margn" does not exist, at character 1: margn < 0.5.'
        assert said in wrong.stderr

    def test_chosen_jobs_are_asked_again_as_before(self, environment, manifest, tmp_path, engine):
        path = tmp_path / "ids.txt"
        path.write_text("clip-0000-colour\nclip-0001-shape\n")
        chosen = ["--ids-file", str(path), "--force", "--manifest", manifest, "--dataset", "first"]
        # Settings that changed since must not sneak in: they would make answers by another spec.
        changed = {"REELABEL_SAMPLING_NUM_FRAMES": "3", "REELABEL_MODEL_SYSTEM_PROMPT": "Be brief."}

        again = reelabel(environment | changed, "backfill", *chosen)

        assert "2 (2 labels, 0 failures)" in again.stdout, again.stderr
        assert "of the jobs asked: Reconciled: 2 jobs = 2 labels + 0 failures." in again.stdout
        assert labels(engine, "first") == 144

    def test_a_new_way_of_asking_stands_beside_the_old_one(self, environment, manifest, engine):
        where = "state = 'labelled' AND margin > 0 AND job_id LIKE 'clip-000_-%'"
        chosen = ["--task", "colour", "--where", where, "--limit", "2", "--manifest", manifest, "--dataset", "first"]

        again = reelabel(environment, "backfill", *chosen, "--num-frames", "4")

        assert "2 (2 labels, 0 failures)" in again.stdout, again.stdout + again.stderr
        assert labels(engine, "first") == 146
        audit = reelabel(environment, "audit", "last")
        assert "Of the jobs that were chosen for it: Reconciled: 2 jobs = 2 labels + 0 failures." in audit.stdout
        assert audit.returncode == 0

    def test_a_deployment_asks_them_where_the_worker_is(self, environment, manifest):
        assert reelabel(environment, "deploy").returncode == 0
        chosen = ["--ids", "clip-0002-colour", "--force", "--manifest", manifest, "--dataset", "first"]

        there = reelabel(environment, "backfill", *chosen, "--via", "deployment", "--wait")
        failed = reelabel(environment, "backfill", "--ids", "nobody", "--via", "deployment", "--wait")

        assert "1 (1 label, 0 failures)" in there.stdout, there.stderr
        assert failed.returncode == 1
        assert "run_failed: The run failed:" in failed.stderr
        assert "1 job id is not in the manifest: nobody" in " ".join(failed.stderr.split())

    def test_unknown_ids_are_named_and_may_be_passed_over(self, environment, manifest, tmp_path):
        unknown = ",".join(f"nobody-{number}" for number in range(9))
        home = {"REELABEL_HOME": str(tmp_path / "home")}
        path = tmp_path / "ids.txt"
        path.write_text("\n".join([*unknown.split(","), "gone"]), encoding="utf-8-sig")  # as spreadsheets do
        chosen = ["--ids-file", str(path), "--manifest", manifest, "--dataset", "first"]

        refused = reelabel(environment | home, "backfill", *chosen)
        passed = reelabel(environment | home, "backfill", *chosen, "--skip-unknown", "--dry-run")

        assert refused.returncode == 2
        assert "9 job ids are not in the manifest, such as nobody-0, nobody-1" in refused.stderr
        assert (tmp_path / "home/unknown-ids.txt").read_text().split() == unknown.split(",")
        assert "Would ask 1 job on 1 video of first." in passed.stdout
