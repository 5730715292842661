"""Runs whose questions choose their frames: the seconds that answer are shown, by a real image-text model."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from sqlalchemy import select

from reelabel.sources.object_store import ObjectStore
from tasks.database.tables import FAILURE, RESULT
from tasks.demo.actors import paint
from tasks.demo.clips import FPS, Encoding, write_clip
from tasks.demo.shapes import QUESTIONS, draw_colour, draw_shape

LENGTH_S, SHOWN_S = 40, 2
CLIPS = {"red": 11, "green": 27, "blue": 34}
PROMPT, CHOICES = QUESTIONS["colour"]
OPTIONS = ("--sampler", "relevant", "--num-frames", "4")

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def server(vllm_server):
    return vllm_server


@pytest.fixture(scope="module")
def manifest(tmp_path_factory, own_services):
    """Store clips that are empty but for two seconds, and questions about what is there then, two on each clip."""
    folder, objects, rng = tmp_path_factory.mktemp("clips"), ObjectStore(own_services.store), np.random.default_rng(7)
    root, rows = f"{own_services.store.uri}/relevant", []
    for colour, start_s in CLIPS.items():
        shape = replace(draw_shape(rng), colour=colour, rgb=draw_colour(colour, rng), background=60)
        ends = {"arrives": (start_s + SHOWN_S) / LENGTH_S, "leaves": (start_s + SHOWN_S) / LENGTH_S}
        actor = replace(shape.actor(), enters=start_s / LENGTH_S, **ends)
        frames = paint([actor], np.arange(LENGTH_S * FPS) / (LENGTH_S * FPS), rng, background=60)
        path = folder / f"{colour}.mp4"
        write_clip(path, frames, Encoding(container="mp4", codec="libx264", gop=5 * FPS))
        objects.replace(f"{root}/{path.name}", path.read_bytes())
        for task, (prompt, choices) in {"colour": QUESTIONS["colour"], "shape": QUESTIONS["shape"]}.items():
            answer = {"colour": colour, "shape": shape.shape}[task]
            rows.append((f"{colour}-{task}", f"{root}/{path.name}", prompt, list(choices), answer, task))
    rows.append(("gone", f"{root}/gone.mp4", PROMPT, list(CHOICES), None, "colour"))
    columns = ("job_id", "video_uri", "prompt", "choices", "answer", "task")
    path = folder / "clips.parquet"
    pl.DataFrame(rows, schema=columns, orient="row").write_parquet(path)
    objects.replace(f"{root}/{path.name}", path.read_bytes())
    return f"{root}/{path.name}"


def rows(engine, table):
    with engine.connect() as connection:
        query = select(table).where(table.c.dataset == "relevant")
        return {row.job_id: row for row in connection.execute(query)}


@pytest.fixture(scope="module")
def answered(reelabel, manifest):
    run = reelabel("classify", manifest, "--dataset", "relevant", *OPTIONS)
    assert run.returncode == 1, run.stderr  # one video is missing
    return run


@pytest.mark.usefixtures("answered")
def test_each_question_is_shown_the_seconds_that_answer_it(engine):
    found = rows(engine, RESULT)

    assert {colour: found[f"{colour}-colour"].label for colour in CLIPS} == {colour: colour for colour in CLIPS}
    for colour, start_s in CLIPS.items():
        row = found[f"{colour}-colour"]
        shown_s = [int(time_ms) / 1e3 for time_ms in row.chosen_ms.split(",")]
        assert sum(start_s <= time_s < start_s + SHOWN_S for time_s in shown_s) >= 3, row
        assert (row.sampler, row.frames_used) == ("relevant", 4)
        assert row.decode_note.startswith("4 of 64 frames chosen by the question, the best of which is at ")
    assert {job_id: row.code for job_id, row in rows(engine, FAILURE).items()} == {"gone": "video_missing"}


@pytest.mark.usefixtures("answered")
def test_the_page_shows_the_frames_that_were_chosen(reelabel, tmp_path):
    page = tmp_path / "run.html"

    completed = reelabel("report", "last", "--out", str(page), "--job", "red-colour")

    assert completed.returncode == 0, completed.stderr
    assert "Its frames are no longer in the cache" not in page.read_text()
    assert "chosen by the question" in page.read_text()


@pytest.mark.usefixtures("answered")
def test_another_number_of_frames_embeds_no_frame_again(reelabel, engine, manifest):
    before = {job_id: row.frames_decoded for job_id, row in rows(engine, RESULT).items()}

    run = reelabel("classify", manifest, "--dataset", "relevant", "--sampler", "relevant", "--num-frames", "8")

    assert run.returncode == 1, run.stderr
    with engine.connect() as connection:
        query = select(RESULT.c.frames_used, RESULT.c.frames_decoded).where(RESULT.c.frames_used == 8)
        again = connection.execute(query).all()
    assert len(again) == 2 * len(CLIPS)
    assert max(row.frames_decoded for row in again) < 500 < max(before.values())  # all 640, to be embedded


def test_what_cannot_choose_is_refused_in_a_sentence_before_anything_is_asked(reelabel, manifest, tmp_path):
    def refused(*options, **environment):
        run = reelabel("classify", manifest, "--dataset", "refused", *options, **environment)
        assert run.returncode == 2, run.stdout
        assert "Traceback" not in run.stderr
        return " ".join(run.stderr.split())

    (tmp_path / "config.json").write_text(json.dumps({"model_type": "siglip_vision_model"}))
    remote = refused(*OPTIONS, REELABEL_RUN_EXECUTOR="remote")
    routed = refused("--sampler", "auto", "--dense-sampler", "relevant")
    every = refused("--sampler", "relevant", "--num-frames", "-1")
    gone = refused(*OPTIONS, REELABEL_DESCRIBE_MODEL=str(tmp_path / "gone"))

    assert "extract flows load none; set run.executor to local, or use another sampler." in remote
    assert "relevant is not a dense sampler; choose one of" in routed
    assert "the sampler relevant takes no num_frames of -1" in every
    assert "There is no model folder" in gone


def test_a_command_that_knows_no_question_says_which_do(reelabel, own_services, manifest, tmp_path):
    clip = tmp_path / "red.mp4"
    clip.write_bytes(ObjectStore(own_services.store).read(manifest.replace("clips.parquet", "red.mp4")))

    shown = reelabel("frames", str(clip), "--sampler", "relevant")

    assert shown.returncode != 0
    assert "it is for classify, backfill and evaluate" in " ".join(shown.stderr.split())
