"""What a backfill selects and refuses, and that its dry run predicts both."""

import os
import re

import polars as pl
import pytest

from infra.database.connect import connected
from tasks.results.runs import newest_run
from tasks.results.write import RunKey, ShardResults, write_shards
from tests.command_line import reelabel
from tests.reelabel.sources.web_server import serving
from tests.results.rows import job, result

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("jobs")
    (folder / "text.mp4").write_text("no video")
    for name, ids in {"animals": ["a1", "a2", "both"], "birds": ["b1", "both"]}.items():
        videos = [str(folder / "text.mp4")] + [f"/no/{name}.mp4"] * (len(ids) - 1)
        rows = {"job_id": ids, "video_uri": videos, "prompt": ["?"] * len(ids), "choices": [["yes", "no"]] * len(ids)}
        pl.DataFrame(rows).write_parquet(folder / f"{name}.parquet")
    return folder


@pytest.fixture(scope="module")
def run_command(served, folder):
    """Run a command after one run of each dataset, `birds` last."""
    environment = served | {"COLUMNS": "200"}
    for name in ("animals", "birds"):
        completed = reelabel(environment, "classify", str(folder / f"{name}.parquet"))
        assert completed.returncode == 1, completed.stderr  # all of its videos are missing
    return lambda *arguments: reelabel(environment, *arguments)


@pytest.fixture(scope="module")
def backfill(run_command):
    return lambda *arguments: run_command("backfill", *arguments)


def test_ids_are_found_in_the_dataset_that_contains_them(backfill, folder):
    shown = backfill("--ids", "a1,a2", "--dry-run")

    assert shown.returncode == 1, shown.stderr  # one of the videos is missing
    assert "Would answer 2 jobs on 2 videos of animals." in shown.stdout
    again = f"reelabel backfill --dataset animals --ids a1,a2 --manifest {folder}/animals.parquet"
    assert shown.stdout.splitlines()[-1] == f"To answer them: {again}"


def test_a_backfill_that_selects_nothing_says_why(backfill):
    completed = backfill("--dataset", "birds", "--failed", "--since", "2999-01-01")

    assert completed.returncode == 0, completed.stderr
    assert "Nothing to do: no job matches the selection." in completed.stdout


def test_a_dry_run_that_selects_nothing_offers_no_command(backfill):
    shown = backfill("--dataset", "birds", "--failed", "--since", "2999-01-01", "--dry-run")

    assert shown.returncode == 0, shown.stderr
    assert "Would answer 0 jobs on 0 videos of birds." in shown.stdout
    assert "To answer them" not in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--ids", "both"],
            "These job ids are in several datasets: animals (1), birds (1); choose one with --dataset.",
        ),
        (["--ids", "nobody"], "No dataset has a result of job nobody; pass its --manifest."),
        (["--ids", "b1,nobody", "--dataset", "birds"], "1 job id is not in the manifest: nobody; correct them"),
        (["--failed", "--dataset", "fish"], "No run of dataset fish has been started"),
        (
            ["--label", "maybe", "--dataset", "birds"],
            "No job of birds has the label 'maybe'; the labels are: none yet.",
        ),
    ],
)
def test_a_dry_run_refuses_whatever_the_run_refuses(backfill, arguments, message):
    dry, real = backfill(*arguments, "--dry-run"), backfill(*arguments)

    assert (dry.returncode, real.returncode) == (2, 2)
    assert message in dry.stderr
    assert message in real.stderr


def test_a_dataset_alone_is_enough_to_find_its_manifest(backfill):
    assert "of animals." in backfill("--failed", "--dataset", "animals", "--dry-run").stdout


def test_an_unused_label_is_refused_with_a_list_of_those_that_exist(backfill, own_services):
    with connected(own_services.database) as engine:
        row = newest_run(engine, manifest_uri=None, dataset="animals")
        names = ("run_id", "dataset", "spec_id", "host")
        key = RunKey(**{name: row[name] for name in names})
        write_shards(engine, run=key, shards=[ShardResults(results=[result(job("other"))], failures=[])])

    refused = backfill("--label", "yse", "--dataset", "animals", "--dry-run")

    assert refused.returncode == 2
    assert "No job of animals has the label 'yse'; the labels are: no (1)." in refused.stderr


@pytest.fixture
def faults(folder):
    """Options of a backfill of jobs whose videos fail before they are decoded."""
    (folder / "empty.mp4").touch()
    videos = {"b1": folder / "text.mp4", "gone": "/no/gone.mp4", "empty": folder / "empty.mp4"}
    videos |= {"bucket": "s3://nobody/x.mp4", "host": "file://host/x.mp4"}
    rows = {"job_id": [*videos], "video_uri": [*map(str, videos.values())]}
    questions = {"prompt": ["?"] * len(videos), "choices": [["yes", "no"]] * len(videos)}
    pl.DataFrame(rows | questions).write_parquet(folder / "faults.parquet")
    return ("--manifest", str(folder / "faults.parquet"), "--dataset", "birds")


@pytest.mark.parametrize(
    ("job_id", "message"),
    [
        pytest.param("b1", "1 video_unreadable.", id="no video"),
        pytest.param("gone", "1 video_missing.", id="missing"),
        pytest.param("empty", "1 video_empty.", id="empty"),
        pytest.param("bucket", "1 video_refused.", id="of no bucket"),
        pytest.param("host", "1 video_refused.", id="no path"),
    ],
)
def test_a_dry_run_foresees_the_failures_that_a_look_at_the_videos_tells(backfill, faults, job_id, message):
    dry = backfill("--ids", job_id, *faults, "--dry-run")

    assert f"Cannot be used, according to their indexes: {message}" in dry.stdout
    assert dry.returncode == 1


def test_a_run_ends_as_its_dry_run_foresaw(backfill, faults):
    chosen = ("--ids", "gone,empty,bucket,host", *faults)

    dry, real = backfill(*chosen, "--dry-run"), backfill(*chosen)

    assert (dry.returncode, real.returncode) == (1, 1)
    foreseen = _foreseen(dry)
    failed = re.findall(r"failed: (video_\w+) *│ (\d),", real.stdout)
    assert sorted(foreseen) == sorted(f"{count} {code}" for code, count in failed)
    assert dict(failed) == {"video_missing": "1", "video_empty": "1", "video_refused": "2"}


def _foreseen(dry):
    return dry.stdout.partition("Cannot be used, according to their indexes: ")[2].partition(".")[0].split(", ")


@pytest.mark.usefixtures("backfill")
def test_a_dry_run_asks_web_servers(served, folder):
    with serving() as web:
        videos = {"there": web.add("/there.mp4", body=b"text"), "away": web.add("/away.mp4", statuses=(503,) * 9)}
        videos |= {"gone": f"{web.url}/gone.mp4", "none": web.add("/none.mp4")}
        questions = {"prompt": ["?"] * len(videos), "choices": [["yes", "no"]] * len(videos)}
        rows = {"job_id": [*videos], "video_uri": [*videos.values()]}
        pl.DataFrame(rows | questions).write_parquet(folder / "web.parquet")
        reached = served | {"REELABEL_WEB_ALLOW_PRIVATE": "true", "REELABEL_WEB_MAX_ATTEMPTS": "1"}
        chosen = ("--manifest", str(folder / "web.parquet"), "--dataset", "birds", "--dry-run")

        some = reelabel(reached, "backfill", "--ids", ",".join(videos), *chosen)

    assert some.returncode == 1, some.stderr
    assert sorted(_foreseen(some)) == [
        "1 video_empty",
        "1 video_missing",
        "1 video_unavailable",
        "1 video_unreadable",
    ]


def test_jobs_whose_video_has_changed_are_selected(backfill, folder):
    unchanged = backfill("--changed-video", "--dataset", "animals", "--dry-run")
    assert "Would answer 0 jobs on 0 videos of animals." in unchanged.stdout

    (folder / "text.mp4").write_text("another text")
    os.utime(folder / "text.mp4", (1, 1))

    changed = backfill("--changed-video", "--dataset", "animals", "--dry-run")
    assert "Would answer 1 job on 1 video of animals." in changed.stdout
    assert "Selected: 1 video_unreadable." in changed.stdout


def test_a_trial_is_not_the_spec_of_later_backfills_unless_it_is_marked(backfill, run_command, own_services):
    animals = ("--dataset", "animals")
    main = "reelabel-tiny, keyframes, 16 frames)"
    trial = backfill("--ids", "a1", "--num-frames", "8", *animals)
    with connected(own_services.database) as engine:
        run_id = str(newest_run(engine, manifest_uri=None, dataset="animals")["run_id"])

    later = backfill("--failed", "--dry-run", *animals)
    run_command("reference", run_id)
    marked = backfill("--failed", "--dry-run", *animals)
    dry = backfill("--code", "video_missing", "--dry-run", *animals)
    real = backfill("--code", "video_missing", *animals)
    run_command("reference", run_id, "--remove")

    assert f"{main}, of run " in trial.stdout
    assert "writes to spec " in trial.stdout
    assert "Would answer 3 jobs" in later.stdout
    assert f"{main}, of run " in later.stdout
    assert "Would answer 1 job " in marked.stdout
    assert f"8 frames), of run {run_id}, the reference." in marked.stdout
    assert dry.returncode == 0
    repeated = r"16 frames\) has 2 of these: `reelabel (backfill --code video_missing --run \S+)`"
    [suggested] = {match[1] for shown in (dry, real) if (match := re.search(repeated, shown.stdout))}
    assert "Would answer 2 jobs" in run_command(*suggested.split(), "--dry-run").stdout


def test_an_audit_takes_a_manifest_from_where_it_is_now(run_command, folder, own_services):
    was, now = folder / "birds.parquet", folder / "moved.parquet"
    with connected(own_services.database) as engine:
        run_id = str(newest_run(engine, manifest_uri=str(was), dataset=None)["run_id"])
    was.rename(now)

    lost, found = run_command("audit", run_id), run_command("audit", run_id, "--manifest", str(now))
    now.rename(was)

    assert lost.returncode == 2
    assert f"{was}" in lost.stderr
    assert "If it was moved, pass its new location as --manifest." in lost.stderr
    assert "Reconciled: 2 jobs = 0 labels + 2 failures." in found.stdout
