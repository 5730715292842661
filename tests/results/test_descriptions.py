"""The rows of described videos: one each, under the fence of its lease, with those of its chunks."""

import json
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import polars as pl
import pytest
from sqlalchemy import func, select, update

from infra.database.connect import Role, connected
from reelabel.errors import ConfigurationError
from tasks.database.scope import Scope
from tasks.database.tables import DESCRIPTION, DESCRIPTION_CHUNK, FAILURE, PLAN, SHARD
from tasks.description.chunks import cut_chunks
from tasks.description.cost import DescriptionCost
from tasks.description.described import DescribedVideo
from tasks.description.pooling import ChunkDescription, Description, ScoredText
from tasks.description.scenes.change import SceneChange, SceneChanges
from tasks.description.scenes.detect import Scene
from tasks.domain import DescribeSpec, ModelIdentity
from tasks.plans.lease import Work, claim
from tasks.results.audit import audit_jobs
from tasks.results.choose import choose_jobs
from tasks.results.descriptions import count_frames
from tasks.results.pending import changed_jobs, count_reused_ids, pending_jobs, refresh_annotations
from tasks.results.read import count_outcomes, read_description_chunks, read_descriptions, read_outcomes
from tasks.results.retention import older_than, remove_rows
from tasks.results.runs import describes, open_run, read_any_spec, read_spec
from tasks.results.search_catalogue import DatabaseCatalogue
from tasks.results.selection import Selection
from tasks.results.write import RunKey, ShardWriter
from tests.job_table import job_table
from tests.results.rows import FACTS, failure, ids_of, job, record_plan

SPEC = DescribeSpec(model=ModelIdentity(name="siglip"), tags="t", captions="c", scene_threshold=10.0)
SCOPE = Scope(dataset="d", spec_id=SPEC.spec_id)
TAGS = (ScoredText(text="park", score=0.5, probability=0.9), ScoredText(text="gym", score=0.25, probability=0.1))
CAPTION = ScoredText(text="a dog runs", score=0.4)


def film(name, **changed):
    return replace(job(name), prompt="", choices=(), **changed)


def described(of, **changed):
    chunks = tuple(
        ChunkDescription(chunk=chunk, frames=16, tags=TAGS, caption=CAPTION)
        if chunk.index < 2
        else ChunkDescription(chunk=chunk, frames=0)
        for chunk in cut_chunks(25, chunk_s=10)
    )
    video = DescribedVideo(
        job=of,
        fingerprint="e1",
        embedding_key=f"v1/{of.job_id}.arrow",
        dimensions=32,
        shard_index=0,
        duration_s=25.0,
        frames=32,
        description=Description(tags=TAGS, caption=CAPTION, chunks=chunks),
        changes=SceneChanges(
            changes=(SceneChange(pts_ms=12_500, score=0.5, since_ms=12_400, kind="cut"),),
            method="index and ema",
            note="fixed\0",
        ),
        scenes=(Scene(0, 12.5, 1), Scene(12.5, 25, 2, "cut")),
        decode_method="seek",
        cost=DescriptionCost(frames_decoded=99, frames_embedded=32, embed_ms=1.5),
    )
    return replace(video, **changed)


@pytest.fixture
def run(db):
    key = RunKey(run_id=uuid4(), dataset="d", spec_id=SPEC.spec_id, host="h")
    open_run(db, run_id=key.run_id, spec=SPEC, facts=FACTS | {"kind": "describe"})
    return key


def write(db, run, *videos, failures=(), lease=None):
    ShardWriter(db, run).write((), failures, descriptions=videos, lease=lease)


def count(db, table):
    with db.connect() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


def test_a_video_has_a_row_with_its_tags_caption_scenes_and_cost_and_one_for_each_chunk(db, run):
    write(db, run, described(film("a", task="dogs")))

    [row] = read_descriptions(db, SCOPE).to_dicts()
    assert json.loads(row["tags"]) == [
        {"text": "park", "score": 0.5, "probability": 0.9},
        {"text": "gym", "score": 0.25, "probability": 0.1},
    ]
    assert json.loads(row["scenes"]) == [
        {"start_s": 0, "end_s": 12.5, "shots": 1, "begins": None},
        {"start_s": 12.5, "end_s": 25, "shots": 2, "begins": "cut"},
    ]
    columns = ("caption", "caption_score", "caption_probability", "duration_s", "chunks", "frames_used", "task")
    assert [row[name] for name in columns] == ["a dog runs", 0.4, None, 25.0, 3, 32, "dogs"]
    assert (row["scene_changes"], row["scene_method"], row["scene_note"]) == (1, "index and ema", "fixed\ufffd")
    assert (row["frames_decoded"], row["frames_embedded"], row["embed_ms"]) == (99, 32, 1.5)
    assert count_frames(db, run.run_id) == (99, 32)
    chunks = pl.concat(read_description_chunks(db, SCOPE)).select("chunk", "start_s", "end_s", "caption", "changes")
    assert chunks.rows() == [
        (0, 0.0, 10.0, "a dog runs", "[]"),
        (1, 10.0, 20.0, "a dog runs", '[{"kind": "cut", "frame": 0, "score": 0.5, "time_s": 12.5}]'),
        (2, 20.0, 25.0, None, "[]"),
    ]


def test_a_job_has_one_description_or_one_failure(db, run):
    write(db, run, described(film("a")), failures=[failure(film("b"))])
    write(db, run, described(film("a"), duration_s=24.0), described(film("b")))

    assert count_outcomes(db, SCOPE) == (2, 0)
    assert read_descriptions(db, SCOPE)["duration_s"].to_list() == [24.0, 25.0]
    assert count(db, DESCRIPTION_CHUNK) == 6

    # A failure replaces a description of another version of the video only.
    write(db, run, failures=[replace(failure(film("a")), source_fingerprint="e1")])
    write(db, run, failures=[replace(failure(film("b")), source_fingerprint="e2")])
    assert count_outcomes(db, SCOPE) == (1, 1)
    assert count(db, DESCRIPTION_CHUNK) == 3


@pytest.fixture
def plan(db, run):
    return record_plan(db, run, [1], kind="describe", shared=True)


def test_a_worker_that_was_thought_dead_does_not_replace_a_newer_description(db, run, plan):
    old = claim(db, plan.plan_id, Work.BOTH, holder="slow", lease_s=60)
    with db.begin() as connection:
        connection.execute(update(SHARD).values(lease_until=None, state="planned", claimed_for=None))
    new = claim(db, plan.plan_id, Work.BOTH, holder="quick", lease_s=60)
    write(db, run, described(film("a"), duration_s=2.0), lease=new)

    with db.begin() as connection:  # as if the old lease were that of another plan, so that only the fence decides
        connection.execute(update(SHARD).values(token=old.token, state="planned"))
    write(db, run, described(film("a"), duration_s=1.0), lease=old)

    assert read_descriptions(db, SCOPE)["duration_s"].to_list() == [2.0]
    assert count(db, PLAN) == 1


def test_audits_tell_descriptions_failures_missing_and_stale_jobs(db, run):
    jobs = [film("a"), film("b"), film("c"), film("d")]
    write(db, run, described(jobs[0]), described(replace(jobs[3], video_uri="other.mp4")), failures=[failure(jobs[1])])

    report = audit_jobs(db, SCOPE, jobs=jobs)

    assert str(report) == (
        "Not reconciled: 4 jobs = 1 description + 1 failure, but 1 missing, 0 doubled, 1 stale, such as c, d; "
        "run `reelabel describe` again."
    )
    copied = ("dataset", "job_id", "spec_id", "job_digest", "run_id", "shard_index", "host")
    texts = ("stage", "code", "message")
    row = select(*(DESCRIPTION.c[name] for name in copied), *(func.concat("x") for _ in texts))
    with db.begin() as connection:
        connection.execute(FAILURE.insert().from_select([*copied, *texts], row.where(DESCRIPTION.c.job_id == "a")))
    assert audit_jobs(db, SCOPE, jobs=jobs[:1]).doubled == 1


def test_jobs_with_a_valid_description_are_not_pending(db, run):
    jobs = job_table([film("a"), film("b"), film("c")])
    write(db, run, described(film("a")), described(film("b"), fingerprint="e0"))

    found = {"jobs": jobs, "fingerprints_of": lambda uris: ["e1"] * len(uris)}
    assert ids_of(pending_jobs(db, SCOPE, **found)) == ["b", "c"]
    assert ids_of(changed_jobs(db, SCOPE, **found)) == ["b"]


def test_ids_of_another_manifest_are_noticed_by_their_descriptions(db, run):
    write(db, run, described(film("a", video_uri="other.mp4")))

    found = {"dataset": "d", "jobs": job_table([film("a")])}
    assert count_reused_ids(db, manifest_uri="n", **found, describes=True) == 1
    assert count_reused_ids(db, manifest_uri="m.parquet", **found, describes=True) == 0
    assert count_reused_ids(db, manifest_uri="n", **found) == 0


def test_task_names_are_corrected_without_describing_again(db, run):
    write(db, run, described(film("a", task="dogs")))

    refresh_annotations(db, SCOPE, jobs=job_table([film("a", task="cats")]))

    assert read_descriptions(db, SCOPE)["task"].to_list() == ["cats"]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"where": "caption LIKE '%dog%' AND duration_s > 20"}, ["a"]),
        ({"where": "scene_changes > 5"}, []),
        ({"missing": True}, ["c"]),
        ({"failed": True}, ["b"]),
    ],
)
def test_a_backfill_selects_by_what_is_known(db, database, run, selection, expected):
    write(db, run, described(film("a")), failures=[failure(film("b"))])
    with connected(database, Role.READER) as reader:
        jobs = job_table([film("a"), film("b"), film("c")])
        found = choose_jobs(reader, SCOPE, Selection(**selection), jobs=jobs)
    assert ids_of(found.jobs) == expected


def test_outcomes_are_descriptions_and_failures_in_the_order_of_ids(db, run):
    write(db, run, described(film("b")), failures=[failure(film("a"))])

    rows = pl.concat(read_outcomes(db, SCOPE, describes=True)).select("job_id", "caption", "code").rows()

    assert rows == [("a", None, "no_frames"), ("b", "a dog runs", None)]


def test_retention_removes_old_descriptions_with_their_chunks(db, run):
    write(db, run, described(film("a")))
    with db.begin() as connection:
        connection.execute(update(DESCRIPTION).values(created_at=func.now() - timedelta(days=3)))
        connection.exec_driver_sql("UPDATE reelabel.run SET state = 'done'")

    assert remove_rows(db, older_than(timedelta(days=2))) == 1
    assert (count(db, DESCRIPTION), count(db, DESCRIPTION_CHUNK)) == (0, 0)


def test_a_spec_of_descriptions_is_distinguished_from_one_of_questions(db, run):
    assert read_any_spec(db, SPEC.spec_id) == SPEC
    assert describes(db, SPEC.spec_id)
    with pytest.raises(ConfigurationError, match="is of a run that describes videos, and asks no questions"):
        read_spec(db, SPEC.spec_id)
    assert run.spec_id == SPEC.spec_id


def test_searches_know_the_embedding_files_of_described_videos(db, run):
    catalogue, model = DatabaseCatalogue(db), SPEC.model
    assert (catalogue.models(), len(catalogue.read(model))) == ({}, 0)
    secret = "https://videos.example/c.mp4?signature=secret"
    write(db, run, described(film("a", task="dogs")), described(film("b")), described(film("c", video_uri=secret)))

    assert catalogue.models() == {model: 3}
    assert sorted(catalogue.files(model)["key"]) == ["v1/a.arrow", "v1/b.arrow", "v1/c.arrow"]
    files = catalogue.files(model).sort("key")
    assert files["key"].to_list() == ["v1/a.arrow", "v1/b.arrow", "v1/c.arrow"]
    assert files["video"].n_unique() == 3
    assert catalogue.files(model, task="dogs")["key"].to_list() == ["v1/a.arrow"]
    rows = catalogue.read(model)
    assert rows.select("job_id", "task", "key").rows() == [
        ("a", "dogs", "v1/a.arrow"),
        ("b", None, "v1/b.arrow"),
        ("c", None, "v1/c.arrow"),
    ]
    assert catalogue.read(model, keys=["v1/c.arrow", "v1/gone.arrow"])["job_id"].to_list() == ["c"]
    assert catalogue.read(model, keys=[]).is_empty()
    assert rows["video_uri"][2] == "https://videos.example/c.mp4?..."
    assert catalogue.read(model, task="dogs")["job_id"].to_list() == ["a"]
    assert catalogue.read(model, dataset="e").is_empty()
    assert catalogue.read(model, job_id="b")["key"].to_list() == ["v1/b.arrow"]
    assert catalogue.read(ModelIdentity(name="clip")).is_empty()
