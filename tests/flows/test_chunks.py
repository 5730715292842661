"""Runs that ask about films chunk by chunk, by a real model."""

import io
import json
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from sqlalchemy import delete, select, update

from reelabel.sources.object_store import ObjectStore
from tasks.database.tables import CHUNK, FAILURE, RESULT
from tasks.demo.clips import FPS, Encoding, write_clip
from tasks.demo.shapes import QUESTIONS, draw_colour, draw_shape, render_frames
from tasks.evaluation.scores import Evaluation
from tests.command_line import reelabel as run_command

SCENE_S = 4
FILMS = {"film": ("green", "blue", "red", "yellow"), "other": ("green", "blue", "green"), "short": ("red",)}

NO_ANSWER = dict.fromkeys(("label", "choice_index", "probabilities", "margin", "entropy_nats")) | {
    "code": "decoder_timeout",
    "stage": "decode",
    "message": "?",
}

pytestmark = pytest.mark.system


def scene(colour, rng):
    shape = replace(draw_shape(rng), colour=colour, rgb=draw_colour(colour, rng), background=100)
    return render_frames(shape, np.linspace(0, 1, SCENE_S * FPS), rng)


@pytest.fixture(scope="module")
def server(vllm_server):
    return vllm_server


@pytest.fixture(scope="module")
def write_manifest(tmp_path_factory, own_services):
    """Return a function that stores a manifest of questions about films; each object is there for one scene alone."""
    folder, objects = tmp_path_factory.mktemp("films"), ObjectStore(own_services.store)
    root, rng = f"{own_services.store.uri}/films", np.random.default_rng(7)
    for name, colours in FILMS.items():
        path = folder / f"{name}.mp4"
        frames = np.concatenate([scene(colour, rng) for colour in colours])
        write_clip(path, frames, Encoding(container="mp4", codec="libx264", gop=FPS))
        objects.replace(f"{root}/{path.name}", path.read_bytes())
    prompt, choices = QUESTIONS["colour"]

    def write(name, job_ids):
        uris = [f"{root}/{job_id.partition('#')[0]}.mp4" for job_id in job_ids]
        rows = {"job_id": job_ids, "video_uri": uris, "prompt": prompt, "choices": [list(choices)] * len(job_ids)}
        path = folder / f"{name}.parquet"
        pl.DataFrame(rows).write_parquet(path)
        objects.replace(f"{root}/{path.name}", path.read_bytes())
        return f"{root}/{path.name}"

    return write


def rows(engine, table, *columns, dataset="films"):
    query = select(*(table.c[name] for name in columns)).where(table.c.dataset == dataset)
    with engine.connect() as connection:
        return connection.execute(query.order_by(*query.selected_columns)).all()


@pytest.fixture(scope="module")
def films(write_manifest):
    return write_manifest("films", [*FILMS, "gone"])


@pytest.fixture(scope="module", autouse=True)
def answered(reelabel, films):
    options = ["--dataset", "films", "--chunk-s", str(SCENE_S), "--chunk-rule", "any:red"]
    run = reelabel("classify", films, *options)
    assert run.returncode == 1, run.stderr  # one video is missing
    return run


def test_a_film_that_shows_red_for_one_chunk_alone_is_found(engine, answered):
    found = {row.job_id: row for row in rows(engine, RESULT, "job_id", "label", "chunks", "chunks_answered")}

    assert {name: row.label == "red" for name, row in found.items()} == {"film": True, "other": False, "short": True}
    assert {name: (row.chunks, row.chunks_answered) for name, row in found.items()} == {
        name: (len(colours), len(colours)) for name, colours in FILMS.items()
    }
    assert rows(engine, FAILURE, "job_id", "code", "chunks") == [("gone", "video_missing", None)]
    labels = rows(engine, CHUNK, "job_id", "chunk", "label")
    assert [label for job_id, _, label in labels if job_id == "film"] == list(FILMS["film"])
    assert "4 jobs = 3 labels + 1 failure, from 8 chunks, 0 of them without an answer" in answered.stdout


def test_a_dry_run_estimates_chunks_frames_and_seconds(reelabel, films):
    foretold = reelabel("classify", films, "--dataset", "new", "--chunk-s", str(SCENE_S), "--dry-run")

    shown = " ".join(foretold.stdout.split())
    assert f"Each job is asked about in chunks of {SCENE_S} s, by the rule majority." in shown
    assert "chunks: 8" in shown
    assert "Cannot be used, according to their indexes: 1 video_missing" in shown
    frames = int(re.search(r"frames to decode: (\d+)", shown)[1])
    assert frames == sum(map(len, FILMS.values())) * SCENE_S  # one keyframe a second
    assert "extraction: " in shown


def test_chunks_are_listed_with_their_places(reelabel):
    listed = reelabel("results", "--chunks")
    assert listed.returncode == 0, listed.stderr
    found = json.loads(reelabel("results", "--chunks", "--format", "json").stdout)

    assert "film#2" in listed.stdout
    [chunk] = [row for row in found if row["chunk_id"] == "film#2"]
    assert (chunk["start_s"], chunk["end_s"], chunk["label"]) == (8, pytest.approx(12, abs=1e-3), "red")
    assert chunk["frames_used"] > 0 < chunk["decode_ms"]


def test_a_failed_job_is_asked_about_its_chunks_without_an_answer_alone(reelabel, engine, films):
    of_film = (CHUNK.c.dataset == "films") & (CHUNK.c.job_id == "film")
    with engine.begin() as connection:
        before = dict(connection.execute(select(CHUNK.c.chunk, CHUNK.c.inference_ms).where(of_film)).tuples().all())
        connection.execute(update(CHUNK).where(of_film & (CHUNK.c.chunk == 2)).values(**NO_ANSWER))
        row = connection.execute(delete(RESULT).where(RESULT.c.job_id == "film").returning(RESULT)).mappings().one()
        names = ("dataset", "job_id", "spec_id", "job_digest", "source_fingerprint", "chunks", "run_id", "shard_index")
        failed = {name: row[name] for name in (*names, "host", "fence")}
        failed |= {"attempts": 1, "chunks_answered": 3, "stage": "decode", "code": "decoder_timeout", "message": "?"}
        connection.execute(FAILURE.insert().values(**failed))

    run = reelabel("backfill", "--manifest", films, "--dataset", "films", "--failed", "--code", "decoder_timeout")

    assert "1 label, 0 failures" in run.stdout, run.stderr
    with engine.connect() as connection:
        after = dict(connection.execute(select(CHUNK.c.chunk, CHUNK.c.inference_ms).where(of_film)).tuples().all())
    assert [number for number in after if after[number] != before[number]] == [2]
    assert [row.label for row in rows(engine, RESULT, "job_id", "label") if row.job_id == "film"] == ["red"]


def test_the_audit_counts_jobs_once_and_their_chunks(reelabel):
    assert "Reconciled: 4 jobs = 3 labels + 1 failure, from 8 chunks" in reelabel("audit", "last").stdout


def test_what_cannot_be_cut_is_refused_before_anything_is_asked(reelabel, films, write_manifest):
    marked = reelabel("classify", write_manifest("marked", ["film#1"]), "--chunk-s", "4", "--dataset", "refused")
    lacking = reelabel("classify", films, "--chunk-s", "4", "--chunk-rule", "any:purple", "--dataset", "refused")
    ruled = reelabel("classify", films, "--chunk-rule", "mean", "--dataset", "refused")
    wrong = reelabel("classify", films, "--chunk-s", "4", "--chunk-rule", "most", "--dataset", "refused")
    tiny = reelabel("classify", films, "--chunk-s", "0.5", "--dataset", "refused")

    errors = [" ".join(run.stderr.split()) for run in (marked, lacking, ruled, wrong, tiny)]
    assert "With chunk_s, a job_id must not contain #, which numbers chunks. 1 row, first row 0" in errors[0]
    assert "The chunk rule any:purple needs 'purple' among the choices. 4 rows, first row 0" in errors[1]
    assert "The chunk rule mean has no chunks; also set chunk_s, such as 60." in errors[2]
    assert "There is no chunk rule 'most': use majority, mean, or any:CHOICE" in errors[3]
    assert "--chunk-s 0.5: use at least 1 second, or 0 to cut nothing." in errors[4]


def test_an_evaluation_scores_jobs_not_chunks(served, films, tmp_path, own_services):
    objects = ObjectStore(own_services.store)
    known = pl.read_parquet(io.BytesIO(objects.read(films))).with_columns(
        answer=pl.col("job_id").replace_strict({"film": "red", "other": "green", "short": "red", "gone": "red"})
    )
    known.write_parquet(tmp_path / "known.parquet")
    chunks = ("--chunk-s", str(SCENE_S), "--chunk-rule", "any:red")

    run = run_command(served, "evaluate", str(tmp_path / "known.parquet"), "--dataset", "known", *chunks, "--json", "-")

    evaluation = Evaluation.from_json(run.stdout)
    assert (evaluation.jobs, evaluation.known) == (4, 4), run.stderr
    for spec in evaluation.specs:
        assert (spec.labels, spec.failures) == (3, 1)
        assert spec.accuracy.value == 1.0
        assert spec.cost.frames_decoded > 0
