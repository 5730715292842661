"""`classify --once-per-duplicate`: one video of each group of near-duplicates is asked about, by the real command."""

import json
import os
import signal
import subprocess
import sys
from itertools import product

import numpy as np
import polars as pl
import pytest
from sqlalchemy import func, select

from benchmarks.models import make_siglip
from reelabel.sources.object_store import ObjectStore
from tasks.database.tables import FAILURE, RESULT, RUN
from tasks.demo.captions import SHAPE_BANK
from tasks.demo.clips import ENCODINGS, draw_clip, write_clip
from tasks.frame_cache.extractor import FrameExtractor
from tests.flows.runs import count_labels
from tests.held_writes import only_first_rows_of
from tests.wait import until

pytestmark = pytest.mark.system

# What is shown, by file: two films are there in other encodings, too.
SHOWN = {"a.mp4": 0, "a.mkv": 0, "a.webm": 0, "b.mp4": 1, "b.webm": 1, "c.mp4": 2}
QUESTIONS = [("Which colour?", ["red", "blue"]), ("Which shape?", ["circle", "square"])]
LEAST = "0.97"


@pytest.fixture(scope="module")
def root(tmp_path_factory, own_services, reelabel):
    """Clips on the store, described but for the last."""
    folder, rng = tmp_path_factory.mktemp("films"), np.random.default_rng(12)
    films = [draw_clip(rng)[1] for _ in range(4)]
    objects, root = ObjectStore(own_services.store), f"{own_services.store.uri}/films"
    for name, film in (SHOWN | {"new.mp4": 3}).items():
        encoding = next(each for each in ENCODINGS if each.container == name.partition(".")[2])
        write_clip(folder / name, films[film], encoding)
        objects.replace(f"{root}/{name}", (folder / name).read_bytes())
    described = [{"job_id": name, "video_uri": f"{root}/{name}"} for name in SHOWN]
    pl.DataFrame(described).write_parquet(folder / "described.parquet")
    (folder / "shapes.txt").write_text("\n".join(SHAPE_BANK))
    run = reelabel("describe", str(folder / "described.parquet"), "--tags", str(folder / "shapes.txt"))
    assert run.returncode == 0, run.stderr
    return root


@pytest.fixture
def write(root, tmp_path):
    def write(name, *, questions=QUESTIONS, videos=(*SHOWN, "new.mp4")):
        rows = [
            {"job_id": f"{video}-{number}", "video_uri": f"{root}/{video}", "prompt": prompt, "choices": choices}
            for video in videos
            for number, (prompt, choices) in enumerate(questions)
        ]
        path = tmp_path / f"{name}.parquet"
        pl.DataFrame(rows).write_parquet(path)
        return str(path)

    return write


def rows_of(engine, dataset):
    with engine.connect() as connection:
        rows = connection.execute(select(RESULT).where(RESULT.c.dataset == dataset)).mappings()
        return {row["job_id"]: row for row in rows}


def require_right_copies(rows, *, questions):
    """Check that of each film and question one job was asked, and that the others have its answer at no cost."""
    answer, cost = ("label", "probabilities", "margin"), ("prompt_tokens", "decode_ms", "inference_ms")
    for number, film in product(range(questions), (0, 1)):
        group = [rows[f"{name}-{number}"] for name, shown in SHOWN.items() if shown == film]
        [original] = [row for row in group if row["copied_from"] is None]
        assert original["prompt_tokens"] > 0
        for copy in (row for row in group if row is not original):
            assert copy["copied_from"] == original["job_id"]
            assert [copy[name] for name in answer] == [original[name] for name in answer]
            assert [copy[name] for name in cost] == [0, 0, 0]
            assert copy["source_fingerprint"] != original["source_fingerprint"]
    others = [rows[f"{name}-{number}"] for name in ("c.mp4", "new.mp4") for number in range(questions)]
    assert {row["copied_from"] for row in others} == {None}


def test_one_video_of_each_group_is_asked_about_and_the_rows_say_so(reelabel, write, engine, tmp_path):
    manifest = write("once")
    command = ("classify", manifest, "--once-per-duplicate", LEAST)

    dry, run = reelabel(*command, "--dry-run"), reelabel(*command)
    again = reelabel(*command)

    assert "8 jobs to ask, whose answers are copied to 6 more." in dry.stdout, dry.stdout + dry.stderr
    assert "2 of 14 jobs have no vectors of their video as it is now" in " ".join(dry.stderr.split())
    assert run.returncode == 0, run.stderr
    assert "14 labels (6 copied from near-duplicates) + 0 failures" in " ".join(run.stdout.split())
    rows = rows_of(engine, "once")
    require_right_copies(rows, questions=len(QUESTIONS))
    assert "Nothing to do" in again.stdout
    assert rows_of(engine, "once") == rows
    with engine.connect() as connection:
        of_run = RUN.c.dataset == "once"
        query = select(RUN.c.prompt_tokens, RUN.c.jobs_labelled).where(of_run).order_by(RUN.c.started_at).limit(1)
        assert connection.execute(query).one() == (sum(row["prompt_tokens"] for row in rows.values()), 14)
    audit = json.loads(reelabel("audit", "last", "--json").stdout)
    assert (audit["labels"], audit["copied"], audit["failures"]) == (14, 6, 0)
    copy = next(row for row in rows.values() if row["copied_from"])
    assert f"Copied from job {copy['copied_from']}" in reelabel("job", copy["job_id"]).stdout
    exported = reelabel("results", "last", "--format", "csv").stdout
    assert "copied_from" in exported.partition("\n")[0]
    page = tmp_path / "run.html"
    assert reelabel("report", "last", "--out", str(page)).returncode == 0
    assert "Copied from jobs on near-duplicates: 6 answers." in page.read_text()


def test_videos_that_were_never_described_are_asked_about(reelabel, write, engine):
    run = reelabel("classify", write("undescribed", videos=("new.mp4",)), "--once-per-duplicate", LEAST)

    assert run.returncode == 0, run.stderr
    assert [row["copied_from"] for row in rows_of(engine, "undescribed").values()] == [None] * 2


def test_jobs_on_several_videos_are_not_counted_as_never_described(reelabel, root, tmp_path):
    jobs = {"job_id": ["a", "b"], "video_uris": [[f"{root}/a.mp4"], [f"{root}/a.mp4", f"{root}/a.webm"]]}
    pl.DataFrame(jobs).with_columns(prompt=pl.lit("?"), choices=pl.lit(["x", "y"])).write_parquet(
        tmp_path / "several.parquet"
    )

    dry = reelabel("classify", str(tmp_path / "several.parquet"), "--once-per-duplicate", LEAST, "--dry-run")

    assert "2 jobs to ask, whose answers are copied to 0 more." in dry.stdout, dry.stdout + dry.stderr
    assert "have no vectors" not in dry.stderr


def test_a_segment_is_compared_by_the_vectors_of_that_segment(reelabel, root, engine, tmp_path):
    segments = [("a.mp4", 0.0, 1.5), ("a.webm", 0.0, 1.5), ("b.mp4", 0.0, 1.5)]
    columns = {"job_id": [name for name, _, _ in segments], "video_uri": [f"{root}/{name}" for name, _, _ in segments]}
    columns |= {"start_s": [start_s for _, start_s, _ in segments], "end_s": [end_s for _, _, end_s in segments]}
    path = tmp_path / "segments.parquet"
    pl.DataFrame(columns).with_columns(prompt=pl.lit("Which?"), choices=pl.lit(["x", "y"])).write_parquet(path)
    (tmp_path / "shapes.txt").write_text("\n".join(SHAPE_BANK))
    command = ("classify", str(path), "--once-per-duplicate", LEAST)

    before = reelabel(*command, "--dry-run")
    assert reelabel("describe", str(path), "--tags", str(tmp_path / "shapes.txt")).returncode == 0
    run = reelabel(*command)

    assert "3 jobs to ask, whose answers are copied to 0 more" in before.stdout, before.stdout + before.stderr
    assert run.returncode == 0, run.stderr
    copied = {name: row["copied_from"] for name, row in rows_of(engine, "segments").items()}
    assert copied in (
        {"a.mp4": None, "a.webm": "a.mp4", "b.mp4": None},
        {"a.mp4": "a.webm", "a.webm": None, "b.mp4": None},
    )


def test_without_the_option_every_video_is_asked_about(reelabel, write, engine):
    manifest = write("each")
    assert reelabel("classify", manifest, "--once-per-duplicate", LEAST).returncode == 0

    run = reelabel("classify", manifest)

    assert run.returncode == 0, run.stderr
    answered = [row for row in rows_of(engine, "each").values() if row["copied_from"] is None]
    assert len(answered) == 14  # under its own spec


def test_a_killed_run_keeps_whole_groups_and_is_continued(reelabel, served, write, engine, own_services):
    questions = [(f"Question {number}?", ["yes", "no"]) for number in range(20)]
    manifest = write("killed", questions=questions)
    small = {"REELABEL_SHARD_TARGET_JOBS": "50", "REELABEL_SHARD_LEASE_S": "5"}
    command = ("classify", manifest, "--once-per-duplicate", LEAST)
    with only_first_rows_of("killed", own_services.database):
        killed = subprocess.Popen(
            [sys.executable, "-m", "flows.cli.main", *command],
            env=served | small,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(lambda: count_labels(engine, "killed") or killed.poll() is not None, 200)
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
    before = rows_of(engine, "killed")
    with engine.connect() as connection:
        message = connection.execute(select(RUN.c.message).where(RUN.c.dataset == "killed")).scalar_one()
    assert message == (
        "Once per duplicate: 80 jobs to ask, whose answers are copied to 60 more. 20 of 140 jobs have no vectors of "
        "their video as it is now, and are asked as always; to compare them, describe them first."
    )
    assert 0 < len(before) < 140
    assert {row["copied_from"] for row in before.values()} - {None} <= before.keys()

    run = reelabel(*command, **small)

    assert "140 labels (60 copied from near-duplicates)" in " ".join(run.stdout.split()), run.stdout + run.stderr
    rows = rows_of(engine, "killed")
    assert {name: rows[name] for name in before} == before
    require_right_copies(rows, questions=len(questions))


def test_the_copies_of_a_job_that_fails_are_asked_themselves(reelabel, write, engine, monkeypatch):
    manifest, failing, prepare = write("failing", videos=("a.mp4", "a.mkv", "a.webm")), set(), FrameExtractor.prepare

    def fail_first(self, uri, *arguments, **options):
        failing.add(min(failing, default=uri))
        if uri in failing:
            return {}["nobody foresees this"]
        return prepare(self, uri, *arguments, **options)

    command = ("classify", manifest, "--once-per-duplicate", LEAST, "--num-frames", "7")
    with monkeypatch.context() as patch:
        patch.setattr(FrameExtractor, "prepare", fail_first)
        run = reelabel(*command)

    assert "6 jobs = 4 labels + 2 failures" in " ".join(run.stdout.split()), run.stdout + run.stderr
    assert all(row["copied_from"] is None for row in rows_of(engine, "failing").values())
    with engine.connect() as connection:
        of_run = select(func.sum(RUN.c.prompt_tokens)).where(RUN.c.dataset == "failing")
        spent = connection.execute(of_run).scalar_one()
        assert spent == sum(row["prompt_tokens"] for row in rows_of(engine, "failing").values())
        assert connection.execute(select(FAILURE.c.code).where(FAILURE.c.dataset == "failing")).scalars().all() == [
            "internal",
            "internal",
        ]
    backfill = reelabel("backfill", "--failed", "--dataset", "failing", "--manifest", manifest)
    assert backfill.returncode == 0, backfill.stderr
    assert len(rows_of(engine, "failing")) == 6


def test_a_video_that_was_replaced_since_it_was_described_is_asked_about(reelabel, root, write, engine, own_services):
    objects = ObjectStore(own_services.store)
    manifest, before = write("replaced", videos=("b.mp4", "b.webm")), objects.read(f"{root}/b.webm")
    objects.replace(f"{root}/b.webm", objects.read(f"{root}/c.mp4"))
    try:
        run = reelabel("classify", manifest, "--once-per-duplicate", LEAST)
    finally:
        objects.replace(f"{root}/b.webm", before)

    assert run.returncode == 0, run.stderr
    assert [row["copied_from"] for row in rows_of(engine, "replaced").values()] == [None] * 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--once-per-duplicate", LEAST, "--chunk-s", "2"),
            "not about chunks; leave it out, or set chunk_s to 0",
        ),
        (("--once-per-duplicate", "0.2"), "--once-per-duplicate 0.2: must be at least 0.5"),
        (("--once-per-duplicate", LEAST), "No video has embeddings of the model"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_any_row(reelabel, write, engine, tmp_path, options, message):
    other = {"REELABEL_DESCRIBE_MODEL": str(make_siglip(tmp_path))} if "embeddings" in message else {}

    run = reelabel("classify", write("refused"), *options, **other)

    assert run.returncode == 2, run.stdout
    assert message in run.stderr
    assert rows_of(engine, "refused") == {}
