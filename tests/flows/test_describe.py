"""Whole runs that describe videos, by the tiny image-text model."""

import io
import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest
from sqlalchemy import select

from benchmarks.models import SIGLIP_SIZE, make_siglip
from reelabel.sources.object_store import ObjectStore
from tasks.database.tables import DESCRIPTION, PLAN, RUN, SHARD
from tasks.demo.captions import SHAPE_BANK
from tasks.demo.clips import ENCODINGS, FPS, Encoding, draw_clip, write_clip
from tasks.demo.shapes import draw_shape, render_frames
from tasks.description.banks import PLACES
from tasks.model.identity import TINY_ENCODER
from tests.command_line import reelabel as run_command
from tests.command_line import reelabel_process
from tests.manifests import upload
from tests.report.test_page import cards_of

SCENE_S = 4
CLIPS = 6
COPIES = 20

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def videos(tmp_path_factory, own_services):
    """Clips of one shape each, a film of two, a file that is no video, and one that is gone; by id, what is shown."""
    folder, rng = tmp_path_factory.mktemp("videos"), np.random.default_rng(90_000)
    root = f"{own_services.store.uri}/videos"
    truths = {}
    for number, encoding in enumerate(ENCODINGS[:CLIPS]):
        shape, frames = draw_clip(rng)
        truths[f"clip-{number}"] = [f"a {shape.colour} {shape.shape}"]
        write_clip(folder / f"clip-{number}.{encoding.container}", frames, encoding)
    shapes = draw_shape(rng), draw_shape(rng)
    scenes = [render_frames(shape, np.linspace(0, 1, SCENE_S * FPS), rng) for shape in shapes]
    truths["film"] = [f"a {shape.colour} {shape.shape}" for shape in shapes]
    write_clip(folder / "film.mp4", np.concatenate(scenes), Encoding(container="mp4", codec="libx264", gop=FPS))
    (folder / "text.mp4").write_text("no video")
    names = {path.stem: path.name for path in sorted(folder.iterdir())} | {"gone": "gone.mp4"}
    rows = {"job_id": [*names], "video_uri": [f"{root}/{name}" for name in names.values()]}
    pl.DataFrame(rows).write_parquet(folder / "manifest.parquet")
    upload(folder, own_services.store, root)
    (folder / "shapes.txt").write_text("\n".join(SHAPE_BANK))
    return f"{root}/manifest.parquet", folder / "shapes.txt", truths


@pytest.fixture(scope="module")
def reelabel(own_environment):
    return lambda *arguments: run_command(own_environment | {"COLUMNS": "200"}, *map(str, arguments))


@pytest.fixture(scope="module")
def describe(reelabel, videos):
    manifest, bank, _ = videos
    return lambda *options: reelabel(
        "describe", manifest, "--dataset", "videos", "--tags", bank, "--chunk-s", 4, *options
    )


@pytest.fixture(scope="module", autouse=True)
def described(describe):
    run = describe()
    assert run.returncode == 1, run.stderr  # two videos cannot be described
    return run


def summary_of(run):
    """What a summary says, by its first column."""
    cells = [line.strip("│").split("│") for line in run.stdout.splitlines() if line.startswith("│")]
    return {name.strip(): value.strip() for name, value in cells if name.strip()}


def test_every_video_ends_as_one_description_or_one_explained_failure(described, reelabel):
    summary = summary_of(described)

    assert summary["described in this run"] == f"{CLIPS + 3} ({CLIPS + 1} descriptions, 2 failures)"
    assert float(summary["engine"].split()[0]) > 0  # seconds of the encoder's start
    assert 0 < float(summary["seconds: embed"]) < float(summary["seconds: total"])
    assert summary["audit"] == f"Reconciled: {CLIPS + 3} jobs = {CLIPS + 1} descriptions + 2 failures."
    assert reelabel("audit", "last").returncode == 0
    found = json.loads(reelabel("results", "last", "--format", "json").stdout)
    assert {row["job_id"]: row["code"] for row in found if row["code"]} == {
        "gone": "video_missing",
        "text": "video_unreadable",
    }


def test_videos_are_tagged_by_what_they_show(reelabel, videos):
    _, _, truths = videos
    rows = pl.read_csv(io.StringIO(reelabel("results", "last", "--format", "csv").stdout)).drop_nulls("tags")
    firsts = {row["job_id"]: json.loads(row["tags"])[0]["text"] for row in rows.iter_rows(named=True)}

    right = [firsts[name] in truth for name, truth in truths.items()]

    assert sum(right) >= len(right) - 1


def test_each_chunk_of_a_film_is_described_and_its_cut_is_found(reelabel, videos):
    _, _, truths = videos
    chunks = pl.DataFrame(json.loads(reelabel("results", "last", "--chunks", "--format", "json").stdout))
    film = chunks.filter(pl.col("job_id") == "film")

    assert film["start_s"].to_list() == [0, SCENE_S]
    assert [json.loads(tags)[0]["text"] for tags in film["tags"]] == truths["film"]
    [[], [change]] = map(json.loads, film["changes"])
    assert change["time_s"] == pytest.approx(SCENE_S, abs=0.3)


@pytest.mark.parametrize(
    "options",
    [
        ("--tags", PLACES),  # the last --tags counts
        ("--top-k", 2),
        ("--method", "published"),
        ("--scene-method", "ema"),
        ("--scene-threshold", 0.5),
    ],
)
def test_another_bank_top_k_method_or_threshold_decodes_and_embeds_nothing(describe, engine, options):
    run = describe(*options)

    summary = summary_of(run)
    assert summary["frames"] == "0 decoded, 0 embedded"
    assert summary["videos"] == f"0 embedded, {CLIPS + 1} from the cache"
    with engine.connect() as connection:
        assert len(set(connection.execute(select(DESCRIPTION.c.spec_id)).scalars())) > 1
        newest = select(RUN.c.stage_ms).order_by(RUN.c.started_at.desc()).limit(1)
        is_loaded = "engine start" in connection.execute(newest).scalar_one()
    assert is_loaded == ("--tags" in options)  # for the texts of a bank that is new


def test_a_second_run_has_nothing_to_do(describe):
    run = describe()

    assert summary_of(run)["described in this run"] == "0 (0 descriptions, 0 failures)"


def test_a_backfill_describes_chosen_videos_again(reelabel, describe, engine, own_environment):
    describe()

    run = reelabel("backfill", "--ids", "clip-1,film", "--force", "--dataset", "videos")

    assert run.returncode == 0, run.stderr
    assert summary_of(run)["described in this run"] == "2 (2 descriptions, 0 failures)"
    failed = reelabel("backfill", "--failed", "--dataset", "videos")
    assert summary_of(failed)["described in this run"] == "2 (0 descriptions, 2 failures)"
    two_engines = own_environment | {"CUDA_VISIBLE_DEVICES": "0", "REELABEL_DESCRIBE_ENGINES": "2"}
    dry = run_command(
        two_engines, "backfill", "--where", "duration_s > 7", "--force", "--dataset", "videos", "--dry-run"
    )
    # It opens no encoder, for which this machine would have too few GPUs.
    assert "Would answer 1 job on 1 video of videos" in dry.stdout, dry.stderr
    refused = reelabel("backfill", "--failed", "--dataset", "videos", "--num-frames", "4")
    assert (refused.returncode, "keeps the options of the earlier run" in refused.stderr) == (2, True)
    with engine.connect() as connection:
        assert "backfill" in set(connection.execute(select(RUN.c.kind)).scalars())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a red circle\n\na blue square\n", "line 2 is empty"),
        ("a red circle\nA red CIRCLE\n", "line 2 repeats line 1"),
        (
            "a circle\n" + "a long text about a circle " * 9,
            "line 2: 117 tokens, but the model takes at most 16; shorten it",
        ),
    ],
)
def test_a_faulty_bank_is_refused_by_line_before_any_row(reelabel, engine, videos, tmp_path, text, sentence):
    bank = tmp_path / "bank.txt"
    bank.write_text(text)
    with engine.connect() as connection:
        before = len(connection.execute(select(RUN.c.run_id)).all())

    run = reelabel("describe", videos[0], "--dataset", "faulty", "--tags", bank)

    assert run.returncode == 2
    assert f"The bank {bank} cannot be used: {sentence}" in run.stderr
    with engine.connect() as connection:
        assert len(connection.execute(select(RUN.c.run_id)).all()) == before


def test_the_run_leaves_a_page_with_film_strips_by_scenes(described, reelabel, videos, own_services, tmp_path):
    del described
    completed = reelabel("report", "last", "--out", tmp_path / "run.html", "--job", "film")

    assert completed.returncode == 0, completed.stderr
    [(first, film), *_] = cards_of((tmp_path / "run.html").read_text()).items()
    assert (first, film.count('<li class="scene">')) == ("film", 2)
    assert film.count("<img") >= 8
    assert set(re.findall(r"<li>[\d:.]+ to [\d:.]+ <i>(.+?)</i> -?[\d.]+", film)) == set(videos[2]["film"])
    reports = [info.uri for info in ObjectStore(own_services.store).list(f"{own_services.store.uri}/reports")]
    assert any(uri.endswith(".html") for uri in reports)


def test_a_siglip_in_a_folder_describes_and_is_searched_by_itself(reelabel, describe, tmp_path_factory):
    model = make_siglip(tmp_path_factory.mktemp("model"))

    run = describe("--model", model, "--tags", PLACES)

    summary = summary_of(run)
    assert summary["videos"] == f"{CLIPS + 1} embedded, 0 from the cache"  # none is taken for another model's
    rows = pl.read_csv(io.StringIO(reelabel("results", "last", "--format", "csv").stdout)).drop_nulls("tags")
    assert rows["dimensions"].unique().to_list() == [SIGLIP_SIZE]
    own = reelabel("search", "a kitchen", "--model", model, "--format", "json")
    assert own.returncode == 0, own.stderr
    tiny = reelabel("search", "a red circle", "--format", "json")
    assert tiny.returncode == 0, tiny.stderr
    scores = [moment["score"] for run in (own, tiny) for moment in json.loads(run.stdout)]
    assert all(-1 <= score <= 1 for score in scores)


def test_a_model_without_a_text_tower_is_refused_before_any_row(reelabel, engine, videos, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(TINY_ENCODER, model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"model_type": "siglip_vision_model"}))

    run = reelabel("describe", videos[0], "--dataset", "faulty", "--model", model)

    assert run.returncode == 2
    assert "has no text encoder, so nothing can be compared with its frames; use a whole model" in run.stderr
    with engine.connect() as connection:
        assert connection.execute(select(RUN.c.run_id).where(RUN.c.dataset == "faulty")).all() == []


def test_a_model_that_cannot_be_loaded_once_a_frame_must_be_embedded_ends_the_run_with_its_sentence(
    own_environment, described, engine, videos, tmp_path
):
    del described  # what the model reports is kept, so that it is loaded for the first frame
    (tmp_path / "transformers.py").write_text("raise ImportError('it is broken')")
    broken = own_environment | {"PYTHONPATH": str(tmp_path)}

    run = run_command(broken, "describe", videos[0], "--dataset", "videos", "--tags", str(videos[1]), "--chunk-s", "3")

    assert run.returncode == 2
    assert "reelabel-tiny-siglip: ImportError: it is broken; see the log" in run.stderr
    with engine.connect() as connection:
        newest = select(RUN.c.state, RUN.c.message).order_by(RUN.c.started_at.desc()).limit(1)
        state, message = connection.execute(newest).one()
    assert (state, "ImportError: it is broken" in message) == ("failed", True)


def test_two_simultaneous_runs_share_a_plan_and_describe_each_video_once(
    own_environment, own_services, videos, engine, tmp_path
):
    clips = pl.read_parquet(ObjectStore(own_services.store).read(videos[0])).head(CLIPS + 1)
    copies = [clips.with_columns(job_id=pl.format("{}-{}", "job_id", pl.lit(copy))) for copy in range(COPIES)]
    pl.concat(copies).write_parquet(tmp_path / "many.parquet")
    small_shards = own_environment | {"COLUMNS": "200", "REELABEL_SHARD_TARGET_JOBS": "50"}
    command = ("describe", str(tmp_path / "many.parquet"), "--dataset", "both", "--tags", str(videos[1]))

    with ThreadPoolExecutor(2) as threads:
        runs = [run.result() for run in [threads.submit(reelabel_process, small_shards, *command) for _ in range(2)]]

    jobs = COPIES * len(clips)
    assert [run.returncode for run in runs] == [0, 0], [run.stderr for run in runs]
    assert {summary_of(run)["audit"] for run in runs} == {
        f"Reconciled: {jobs} jobs = {jobs} descriptions + 0 failures."
    }
    with engine.connect() as connection:
        ended = connection.execute(select(RUN.c.jobs_labelled + RUN.c.jobs_failed).where(RUN.c.dataset == "both"))
        assert sum(ended.scalars()) == jobs
        plans = connection.execute(select(PLAN.c.plan_id).where(PLAN.c.dataset == "both")).all()
        shards = select(SHARD.c.shard_index).where(SHARD.c.plan_id.in_([plan.plan_id for plan in plans]))
        assert (len(plans), len(connection.execute(shards).all())) == (1, 3)
