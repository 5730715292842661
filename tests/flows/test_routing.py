"""Runs that warn about keyframes, choose samplers by video and by job, and escalate uncertain answers."""

import json
import re

import numpy as np
import pytest
from sqlalchemy import select

from tasks.database.tables import RESULT, ROUTE, RUN
from tasks.demo.clips import Encoding, clip_jobs, draw_clip, make_demo, write_clip, write_manifest
from tasks.demo.shapes import QUESTIONS
from tests.command_line import reelabel as run_command
from tests.flows.runs import artifact_of
from tests.manifests import upload

CLIPS, LONE = 36, 4

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def server(vllm_server):
    return vllm_server


@pytest.fixture(scope="module")
def manifests(tmp_path_factory, own_services):
    """A manifest of forty clips, four of which hold one keyframe; and one of two of each kind."""
    folder = tmp_path_factory.mktemp("routes")
    root = f"{own_services.store.uri}/routes"
    rows = make_demo(folder, seed=11, clips=CLIPS, uri_prefix=root).rows(named=True)
    rng = np.random.default_rng(12)
    for number in range(LONE):
        shape, frames = draw_clip(rng)
        name = f"lone-{number}.mp4"
        write_clip(folder / name, frames, Encoding(container="mp4", codec="libx264", gop=500))
        rows += clip_jobs(f"{root}/{name}", {task: shape.truth(task) for task in QUESTIONS}, subtask="mp4")
    write_manifest(folder / "manifest.parquet", rows)
    write_manifest(folder / "few.parquet", rows[:6] + rows[-6:])
    upload(folder, own_services.store, root)
    return {name: f"{root}/{name}.parquet" for name in ("manifest", "few")}


@pytest.fixture(scope="module")
def reelabel(served):
    def run(*arguments):
        return run_command(served | {"COLUMNS": "200"}, *arguments, "--dataset", "routes")

    return run


@pytest.fixture(scope="module")
def read(engine):
    def read(table, **where):
        query = select(table).where(*(table.c[name] == value for name, value in where.items()))
        with engine.connect() as connection:
            return connection.execute(query).mappings().all()

    return read


@pytest.fixture(scope="module")
def plain_run(reelabel, manifests):
    return reelabel("classify", manifests["manifest"])


def test_a_run_warns_of_clips_whose_answers_may_be_guesses(plain_run, read, own_services):
    warning = "4 of 40 clips have a single keyframe: answers about anything later are guesses"

    [run] = read(RUN, dataset="routes")
    published = artifact_of(own_services.prefect, run["run_id"], "reelabel-how-to-read")
    for text in (plain_run.stdout, published):
        assert warning in text, plain_run.stderr
        assert "docs/frames.md" in text
    assert (run["coverage"]["videos"], run["coverage"]["one_keyframe"]) == (CLIPS + LONE, LONE)


@pytest.mark.usefixtures("plain_run")
def test_a_run_by_margin_needs_a_fitted_margin(reelabel, manifests, read):
    refused = reelabel("classify", manifests["few"], "--escalate-below", "fitted")

    assert refused.returncode == 2
    assert "No margin was fitted for this spec" in refused.stderr
    assert len(read(RUN, dataset="routes")) == 1


@pytest.mark.usefixtures("plain_run")
def test_fitting_a_margin_asks_for_missing_answers(reelabel, manifests, read):
    unproven = reelabel("route", "fit", manifests["manifest"], "--max-loss", "0.5")
    stored = read(ROUTE, dataset="routes")
    fitted = reelabel("route", "fit", manifests["manifest"], "--max-loss", "20", "--json")

    assert (unproven.returncode, stored) == (1, []), unproven.stderr
    assert "This sample of 120 jobs proves at most" in unproven.stdout
    assert "--escalate-below fitted" not in unproven.stdout
    assert fitted.returncode == 0, fitted.stderr
    facts = json.loads(fitted.stdout)
    [route] = read(ROUTE, dataset="routes")
    assert (facts["jobs"], facts["proof"]["below"]) == (route["jobs"], route["escalate_below"])
    assert facts["proof"]["overall"]["at_most"] == route["loss_at_most"] <= 0.2
    assert {task["name"] for task in facts["proof"]["tasks"]} == set(QUESTIONS)
    assert route["jobs"] == 3 * (CLIPS + LONE)
    dense = read(RESULT, spec_id=route["dense_spec_id"])
    assert {row["sampler"] for row in dense} == {"uniform"}
    by_video = {row["source_fingerprint"]: row["frames_decoded"] for row in dense}
    assert route["dense_frames"] == sum(by_video.values()) > route["first_frames"]


@pytest.mark.usefixtures("plain_run")
def test_jobs_are_routed_by_tag_video_and_margin(reelabel, manifests, read, own_services):
    tags = ["--motion-tasks", "direction", "--still-tasks", "colour"]
    options = ["--sampler", "auto", *tags, "--escalate-below", "1", "--dense-sampler", "num_frames"]

    run = reelabel("classify", manifests["few"], *options)

    assert "Reconciled: 12 jobs = 12 labels + 0 failures." in run.stdout, run.stderr
    last = max(read(RUN, dataset="routes"), key=lambda row: row["started_at"])
    for text in (run.stdout, artifact_of(own_services.prefect, last["run_id"], "reelabel-how-to-read")):
        assert "route: dense sampler by task" in text
        assert "route: escalated, since the margin was low" in text
        assert "by the dense sampler alone" in text
    rows = {row["job_id"]: row for row in read(RESULT, run_id=last["run_id"])}
    assert len(rows) == 12
    for job_id, row in rows.items():
        assert row["sampler"] == "num_frames"
        assert row["first_margin"] is not None
        is_lone, is_still = job_id.startswith("lone"), job_id.endswith("colour")
        by_coverage = "coverage" if is_lone and not is_still else "margin"
        assert row["routed_by"] == ("task" if job_id.endswith("direction") else by_coverage)
        assert (row["coverage"] == "") == (not is_lone)
    twice = [row for row in rows.values() if row["routed_by"] == "margin"]
    assert all(row["frames_decoded"] > row["keyframes_in_file"] for row in twice)
    assert all(row["first_margin"] < 1 == row["escalate_below"] for row in twice)


def test_each_video_is_extracted_once_by_each_sampler_and_what_dense_alone_costs_is_reported(reelabel, manifests, read):
    """As if from scratch: no other run shows five frames."""
    options = [manifests["manifest"], "--num-frames", "5"]
    routed = reelabel("classify", *options, "--sampler", "auto", "--motion-tasks", "direction")
    [tagged] = [row for row in read(RUN, dataset="routes") if row["videos_extracted"] == 2 * CLIPS + LONE]
    dense = reelabel("classify", *options, "--sampler", "uniform")
    alone = max(read(RUN, dataset="routes"), key=lambda row: row["started_at"])
    untagged = reelabel("classify", *options, "--sampler", "auto")

    assert tagged["videos_cached"] == 0
    assert (alone["videos_extracted"], alone["videos_cached"]) == (0, CLIPS + LONE), dense.stderr
    costs = {row["source_fingerprint"]: row["frames_decoded"] for row in read(RESULT, run_id=alone["run_id"])}
    assert f"of about {sum(costs.values()):,} by the dense sampler alone" in routed.stdout, routed.stderr
    # Here it was used on four videos alone, each of one keyframe.
    estimate = re.search(r"of about ([\d,]+) by the dense sampler alone", untagged.stdout)[1]
    assert int(estimate.replace(",", "")) == pytest.approx(sum(costs.values()), rel=0.2)
