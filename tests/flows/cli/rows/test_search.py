"""`reelabel search`, on made embeddings in a folder and rows in Postgres; in the system tier, on described clips."""

import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest
from PIL import Image
from sqlalchemy import insert

from flows.cli.rows.search import fetch_pictures
from infra.embedded import export
from infra.settings import Settings
from reelabel.seal import Seal
from reelabel.sources.opened import stat_video
from tasks.database.tables import DESCRIPTION, RUN, RUN_SPEC, SPEC
from tasks.demo.clips import make_demo
from tasks.domain import DescribeSpec
from tasks.embedding.bank_file import BankFiles
from tasks.model.identity import TINY_ENCODER, read_model_info
from tests.clips import make_clip
from tests.command_line import reelabel, reelabel_process
from tests.description.colours import INFO
from tests.flows.runs import environment_of
from tests.search.conftest import World

__all__ = ["make_clip"]

KEY = "k" * 32
SIZE = 128  # of the tiny model
RED, BLUE = np.eye(SIZE)[:2]


@pytest.fixture(scope="module")
def model():
    return read_model_info(str(TINY_ENCODER)).identity


@pytest.fixture
def world(tmp_path, model):
    return World(tmp_path, model=model, size=SIZE, seal=Seal(KEY.encode()))


@pytest.fixture
def environment(services, database, world, tmp_path):
    settings = services.model_copy(update={"database": database})
    store = {"REELABEL_STORE_URI": world.root, "REELABEL_STORE_MAC_KEY": KEY, "REELABEL_HOME": str(tmp_path / "home")}
    variables = {name: value for name, value in export(settings).items() if not name.startswith("REELABEL_STORE")}
    kept = {name: value for name, value in environment_of(settings).items() if not name.startswith("REELABEL_")}
    return kept | variables | store | {"COLUMNS": "100"}


def describe(db, world):
    """Write the rows of a describe run on the world's videos."""
    spec = DescribeSpec(model=world.model, tags="t", captions="c", scene_threshold=0.15)
    run_id = uuid.uuid4()
    row = {
        "spec_id": spec.spec_id, "run_id": run_id, "job_digest": "d", "dimensions": world.size, "duration_s": 1,
        "tags": [], "scenes": [], "scene_changes": 0, "scene_method": "ema", "chunks": 1, "frames_used": 1,
        "frames_decoded": 0, "frames_embedded": 0, "bytes_fetched": 0, "fetch_ms": 0, "decode_ms": 0,
        "cache_write_ms": 0, "cache_read_ms": 0, "embed_ms": 0, "scenes_ms": 0, "describe_ms": 0, "shard_index": 0,
        "fence": 0, "host": "here",
    }  # fmt: skip
    with db.begin() as connection:
        connection.execute(insert(SPEC).values(spec_id=spec.spec_id, body=spec.model_dump(mode="json")))
        connection.execute(
            insert(RUN).values(
                run_id=run_id, dataset="films", spec_id=spec.spec_id, manifest_uri="m", kind="describe", state="done",
                jobs_total=1, jobs_skipped=0, host="here", started_at=datetime.now(UTC),
            )
        )  # fmt: skip
        connection.execute(insert(RUN_SPEC).values(run_id=run_id, spec_id=spec.spec_id))
        for job in world.jobs:
            renamed = {"source_fingerprint": job.get("source_fingerprint", "1"), "embedding_key": job["key"]}
            values = {name: value for name, value in job.items() if name not in {"key", "video"}}
            connection.execute(insert(DESCRIPTION).values(**row, **(values | renamed)))


@pytest.fixture
def films(db, world):
    """Two films, of which one is red, then blue; and the vector of a text."""
    world.add("a.mp4", [RED, RED, BLUE], step_ms=6000, task="colour")
    world.add("b.mp4", [BLUE + 0.5 * RED], task="shape")
    describe(db, world)
    keep_texts(world)
    return world


def keep_texts(world):
    """Keep the vectors of two texts, so that no model is loaded."""
    kept = BankFiles(objects=world.objects, root_uri=world.root, seal=world.seal)
    for name, vector in (("red", RED), ("blue", BLUE)):
        kept.save_vectors([name], vector[None].astype(np.float32), replace(INFO, dimensions=SIZE), world.model)


def found(done):
    return [(row["job_id"], row["time_s"], round(row["score"], 3)) for row in json.loads(done.stdout)]


@pytest.mark.usefixtures("films")
def test_the_best_moments_are_printed(environment):
    completed = reelabel(environment, "search", "Red")

    assert (completed.returncode, completed.stderr) == (0, ""), completed.stderr
    _, first, *_ = (line for line in completed.stdout.splitlines() if "job-" in line or "score" in line)
    assert all(part in first for part in ("1.000", "0.000 s", "job-a.mp4", "s3://videos/a.mp4"))
    assert "4 moments of 4 frames." in completed.stdout


@pytest.mark.usefixtures("films")
def test_the_same_is_found_again_and_in_every_format(environment):
    expected = [("job-a.mp4", 0.0, 1.0), ("job-a.mp4", 6.0, 1.0), ("job-b.mp4", 0.0, 0.447), ("job-a.mp4", 12.0, 0.0)]

    for _ in range(2):  # the index is built, and opened again
        completed = reelabel(environment, "search", "red", "--format", "json")
        assert (completed.returncode, completed.stderr, found(completed)) == (0, "", expected)
    csv = reelabel(environment, "search", "red", "--format", "csv").stdout
    assert pl.read_csv(csv.encode())["time_s"].to_list() == [0.0, 6.0, 0.0, 12.0]


@pytest.mark.usefixtures("films")
def test_searches_are_limited(environment):
    for options, expected in {
        ("--top", "1"): ["job-a.mp4"],
        ("--task", "shape"): ["job-b.mp4"],
        ("--min-score", "0.4"): ["job-a.mp4", "job-a.mp4", "job-b.mp4"],
    }.items():
        done = reelabel(environment, "search", "red", "--format", "json", *options)
        assert [job for job, *_ in found(done)] == expected


@pytest.mark.usefixtures("films")
def test_each_text_of_a_bank_is_searched_for(environment, tmp_path):
    bank = tmp_path / "texts.txt"
    bank.write_text("Red\nblue\n")

    completed = reelabel(environment, "search", "--bank", str(bank), "--format", "json", "--min-score", "0.6")
    table = reelabel(environment, "search", "--bank", str(bank), "--min-score", "0.6").stdout

    rows = [(row["text"], row["rank"], row["job_id"]) for row in json.loads(completed.stdout)]
    assert rows == [
        ("Red", 1, "job-a.mp4"),
        ("Red", 2, "job-a.mp4"),
        ("blue", 1, "job-a.mp4"),
        ("blue", 2, "job-b.mp4"),
    ]
    assert table.index("Red") < table.index("2 moments of 4 frames.") < table.index("blue")


@pytest.mark.usefixtures("films")
def test_an_empty_search_is_reported_and_exits_with_1(environment):
    completed = reelabel(environment, "search", "red", "--min-score", "0.9", "--task", "shape")

    assert (completed.returncode, completed.stdout) == (1, "Nothing found among 1 frame.\n")


@pytest.mark.usefixtures("films")
def test_what_looks_like_a_moment_is_found_and_not_the_moment_itself(environment):
    done = reelabel(environment, "search", "--like", "job-a.mp4@11.5", "--format", "json", "--top", "2")

    assert found(done) == [("job-b.mp4", 0.0, 0.894), ("job-a.mp4", 0.0, 0.0)]


def test_each_moment_says_whether_its_video_is_gone_or_was_replaced(environment, db, world, tmp_path):
    names = ("same", "other", "gone", "unknown")
    for name in names:
        world.add(f"{name}.mp4", [RED])
    for job, name in zip(world.jobs, names, strict=True):
        job["video_uri"] = str(tmp_path / f"{name}.mp4")
    (tmp_path / "same.mp4").write_bytes(b"as it was described")
    (tmp_path / "other.mp4").write_bytes(b"another video")
    world.jobs[0]["source_fingerprint"] = stat_video(world.objects, world.jobs[0]["video_uri"]).fingerprint
    world.jobs[3]["video_uri"] = "https://videos.example/c.mp4?..."
    describe(db, world)
    keep_texts(world)

    completed = reelabel(environment, "search", "red", "--format", "json")
    table = reelabel(environment | {"COLUMNS": "300"}, "search", "red").stdout

    states = {row["job_id"]: row["video_state"] for row in json.loads(completed.stdout)}
    assert states == {
        "job-same.mp4": "unchanged",
        "job-other.mp4": "replaced",
        "job-gone.mp4": "gone",
        "job-unknown.mp4": None,
    }
    for cell in ("same.mp4 ", "other.mp4 (replaced)", "gone.mp4 (gone)", "c.mp4?... "):
        assert cell in table


def test_the_sheet_shows_frames_and_says_which_cannot_be_shown(environment, db, world, make_clip, tmp_path):
    clip = make_clip("red.mp4", frames=60)
    world.add("a.mp4", [RED])
    world.add("b.mp4", [RED])
    world.add("c.mp4", [RED])
    world.jobs[2]["video_uri"] = "https://videos.example/c.mp4?..."
    world.jobs[0]["video_uri"], world.jobs[1]["video_uri"] = str(clip), str(tmp_path / "gone\x1b\n.mp4")
    world.jobs[0]["source_fingerprint"] = stat_video(world.objects, str(clip)).fingerprint
    describe(db, world)
    keep_texts(world)
    sheet = tmp_path / "found.png"

    completed = reelabel(environment, "search", "red", "--sheet", str(sheet))

    assert completed.returncode == 0, completed.stderr
    assert "\x1b" not in completed.stdout
    assert Image.open(sheet).width == 1280


def test_no_frame_of_another_video_is_shown_as_one_that_was_found(make_clip, tmp_path):
    facts = {"video_uri": str(make_clip("red.mp4")), "score": 0.9, "time_s": 0.0, "job_id": "a"}
    rows = pl.DataFrame([facts | {"video_state": state} for state in ("unchanged", "replaced")])

    unchanged, replaced = fetch_pictures(rows, Settings(home=tmp_path))

    assert (unchanged.image is not None, unchanged.error) == (True, "")
    assert replaced.image is None
    assert replaced.error == "No frame: the video was replaced after it was described; describe it again."


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Give one of TEXT"),
        (["red", "--like", "a@1"], "Give one of TEXT"),
        ([""], "no text to search for"),
        (["a\x1b[31mb"], "cannot be printed"),
        (["--bank", "gone.txt"], "Cannot read the bank gone.txt"),
        (["--bank", "texts.txt", "--sheet", "x.png"], "--sheet shows the results of one search"),
        (["--like", "a"], "does not name a moment"),
        (["--like", "gone@1"], "No job gone has been described"),
        (["--image", "gone.png"], "Cannot read the picture gone.png"),
        (["red", "--dataset", "none"], "No described video of dataset none has embeddings of reelabel-tiny-siglip"),
        (["red", "--format", "xml"], "Unknown --format xml"),
        (["red", "--sheet", "gone/x.png"], "Cannot write gone/x.png"),
        (["red", "--sheet", "x.txt"], "is not an image file"),
        (["red", "--raw"], "--raw is for --format csv"),
        (["red", "--model", "./gone"], "There is no model folder"),
    ],
)
@pytest.mark.usefixtures("films")
def test_what_cannot_be_searched_for_is_one_sentence(environment, arguments, sentence):
    completed = reelabel(environment, "search", *arguments)

    assert completed.returncode == 2
    assert sentence in completed.stderr


def test_an_empty_store_is_one_sentence(environment):
    completed = reelabel(environment, "search", "red")

    assert (completed.returncode, completed.stdout) == (2, "")
    assert "No described videos to search" in completed.stderr


def test_embeddings_of_another_model_are_named(environment, db, world):
    other = World(world.folder, model=world.model.model_copy(update={"name": "big"}), size=SIZE, seal=world.seal)
    other.add("a.mp4", [RED])
    describe(db, other)

    completed = reelabel(environment, "search", "red")

    assert completed.returncode == 2
    assert (
        "No video has embeddings of the model reelabel-tiny-siglip. Other models have some (big (" in completed.stderr
    )


@pytest.mark.system
def test_described_clips_are_searched_by_text_picture_and_moment(own_services, tmp_path):
    """A whole run: describe, and searches in processes of their own."""
    environment = environment_of(own_services)
    clips = make_demo(tmp_path / "clips", seed=30_000, clips=24)
    truths = dict(zip(clips["job_id"], clips["answer"], strict=True))
    manifest = tmp_path / "films.parquet"
    clips.filter(pl.col("job_id").str.ends_with("-colour")).select("job_id", "video_uri").write_parquet(manifest)
    shown = {
        job_id: f"a {truths[job_id]} {truths[job_id.replace('-colour', '-shape')]}"
        for job_id in truths
        if job_id.endswith("-colour")
    }

    completed = reelabel_process(environment, "describe", str(manifest), "--dataset", "films")
    assert completed.returncode == 0, completed.stderr

    texts = sorted(set(shown.values()))
    for text in texts[:2]:
        completed = reelabel_process(environment, "search", text, "--format", "json", "--top", "1")
        assert (completed.returncode, completed.stderr) == (0, ""), completed.stderr
        assert shown[json.loads(completed.stdout)[0]["job_id"]] == text
    job_id = next(job for job, text in shown.items() if list(shown.values()).count(text) > 1)
    sheet = tmp_path / "like.png"
    completed = reelabel_process(
        environment, "search", "--like", f"{job_id}@1", "--format", "json", "--sheet", str(sheet)
    )
    found = [row["job_id"] for row in json.loads(completed.stdout) if row["job_id"] != job_id]
    assert shown[found[0]] == shown[job_id]
    assert Image.open(sheet).size[0] > 1000


def test_duplicates_are_listed_with_their_jobs(db, world, environment):
    world.add("a.mp4", [RED, RED, BLUE], task="colour")
    world.add("copy-of-a.mp4", [BLUE, RED + 0.01 * BLUE], task="shape")
    world.add("b.mp4", [BLUE + 0.5 * RED], task="shape")
    describe(db, world)

    completed = reelabel(environment, "duplicates", "--format", "json")
    rows = json.loads(completed.stdout)

    assert completed.returncode == 0, completed.stderr
    found = sorted((row["group"], row["video_uri"].rpartition("/")[2]) for row in rows)
    assert found == [(1, "a.mp4"), (1, "copy-of-a.mp4")]
    assert [row["similarity"] for row in rows] == [pytest.approx(1, abs=1e-3)] * 2
    assert "1 group among 3 videos." in reelabel(environment, "duplicates").stdout
    none = reelabel(environment, "duplicates", "--task", "shape")
    assert (none.returncode, none.stdout) == (1, "No duplicates among 2 videos.\n")
