"""Groups of jobs of which one is asked for all: how large they are, and that each stays together in a plan."""

from dataclasses import replace
from functools import partial
from itertools import accumulate

import polars as pl
import pytest

from flows.run.duplicates import DuplicateJobs, _described_jobs, _name_groups, find_duplicate_jobs
from infra.settings import Settings, StoreSettings
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from tasks.domain import MAX_JOBS, ModelIdentity, RunSpec, Shard
from tasks.domain.chunks import cut_shard
from tasks.frame_cache.pool import current_fingerprints
from tasks.manifest.check import without_questions
from tasks.manifest.digests import job_digests, job_of
from tasks.manifest.plan_file import PLAN_SCHEMA, split_into_shards
from tasks.manifest.schema import ROW
from tests.job_table import job_table
from tests.results.rows import job

VIDEOS, QUESTIONS = 250, 2


@pytest.fixture
def table():
    """So many videos that all show the same, with two questions each; and as many others."""
    same = [job(f"same-{n:03}-{q}", video_uri=f"s{n:03}.mp4") for n in range(VIDEOS) for q in range(QUESTIONS)]
    return job_table([*same, *(job(f"other-{n}") for n in range(500))])


@pytest.fixture
def duplicates(table):
    [rows] = table.parts()
    same = rows.filter(pl.col("job_id").str.starts_with("same")).select(
        ROW,
        "job_id",
        video_digest="video_uri",
        question=pl.col("job_id").str.tail(1),
        fingerprint=pl.concat_str(pl.lit("v-"), "video_uri"),
        group=pl.lit(7),
    )
    return DuplicateJobs(rows=_name_groups(same.sample(fraction=1, shuffle=True, seed=3)), unseen=3, jobs=1000)


def test_a_group_has_no_more_jobs_than_a_shard(table, duplicates):
    sizes = duplicates.rows["group"].value_counts()["count"].to_list()

    assert sorted(sizes) == sorted([MAX_JOBS, VIDEOS - MAX_JOBS] * QUESTIONS)
    assert len(duplicates.copies(table)) == QUESTIONS * (VIDEOS - 2)
    assert duplicates.describe(table) == "Once per duplicate: 504 jobs to ask, whose answers are copied to 496 more."
    assert duplicates.warning.startswith("3 of 1,000 jobs have no vectors")


def test_each_group_stays_together_and_its_first_job_is_asked_about_the_same_video(table, duplicates):
    jobs = []
    for cut in split_into_shards(duplicates.grouped(table), target_jobs=50):
        named = [pl.col(name) if name in cut.rows.columns else pl.lit(None).alias(name) for name in PLAN_SCHEMA.names]
        planned = [job_of(row | {"asks_again": False}) for row in cut.rows.select(named).iter_rows(named=True)]
        ends = accumulate(cut.sizes)
        jobs += [planned[end - size : end] for size, end in zip(cut.sizes, ends, strict=True)]

    shards = [cut_shard(Shard(index=0, jobs=tuple(each)), {}) for each in jobs]
    assert max(map(len, jobs)) <= MAX_JOBS
    first_jobs = [each for shard in shards for each in shard.shard.jobs if each.group]
    assert len(first_jobs) == 4
    assert {each.video_uri for each in first_jobs} == {"s000.mp4", f"s{MAX_JOBS}.mp4"}  # of both questions
    copies = {first: found for shard in shards for first, found in shard.copies.items()}
    assert copies.keys() == {each.job_id for each in first_jobs}
    assert all(copy.fingerprint == f"v-{copy.video_uri}" for found in copies.values() for copy in found)
    assert sum(map(len, copies.values())) + sum(len(shard.shard.jobs) for shard in shards) == len(table)


def test_jobs_of_groups_are_read_in_parts_of_whole_groups(table, duplicates):
    [rows] = table.parts()
    table = replace(table, _parts=tuple(partial(rows.gather_every, 4, offset) for offset in range(4)))

    parts = [part.filter(pl.col("group").is_not_null()) for part in duplicates.grouped(table)]

    assert sorted(len(part) for part in parts if len(part)) == sorted([MAX_JOBS, VIDEOS - MAX_JOBS] * QUESTIONS)
    assert all(part.columns == parts[0].columns for part in parts)


def test_of_a_selection_only_what_is_selected_is_asked_or_copied(table, duplicates):
    [rows] = table.parts()
    row_numbers = rows.filter(pl.col("job_id").is_in(["same-005-0", "same-006-0", "same-006-1", "other-1"]))[ROW]
    chosen = table.chosen(pl.Series(range(table.rows)).is_in(row_numbers.implode()).to_numpy())

    assert duplicates.describe(chosen) == "Once per duplicate: 3 jobs to ask, whose answers are copied to 1 more."


@pytest.fixture
def seen(tmp_path):
    """Return a function that finds which jobs are about videos that were described as they are now, by their ids."""

    def seen(jobs, *, described, changed=""):
        objects = ObjectStore(StoreSettings())
        paths = {path: tmp_path / path for path in {each.video_uri for each in jobs}}
        for path in paths.values():
            path.write_bytes(b"a video")
        [part] = job_table([replace(each, video_uri=str(paths[each.video_uri])) for each in jobs]).parts()
        digests = job_digests(without_questions(part)).rename("video_digest")
        known = part.select("video_uri").with_columns(digests).unique("video_digest")
        known = known.filter(pl.col("video_uri").is_in([str(paths[name]) for name in described]))
        versions = current_fingerprints(objects, known["video_uri"].to_list())
        versions = known.select("video_digest", source_fingerprint=pl.Series(versions), key=pl.lit("k"))
        for name in changed:
            (tmp_path / f"{name}.mp4").write_bytes(b"another video")
        rows = _described_jobs(part, versions, objects)
        return dict(zip(rows["job_id"].to_list(), rows["question"].to_list(), strict=True))

    return seen


def test_jobs_ask_the_same_if_only_their_videos_differ(seen):
    jobs = [
        job("a"),
        job("b"),
        job("other prompt", video_uri="a.mp4", prompt="Which?"),
        job("other choices", video_uri="a.mp4", choices=("yes", "maybe")),
        job("other task", video_uri="a.mp4", task="colour"),
        job("other subtask", video_uri="a.mp4", task="colour", subtask="of hair"),
        job("a part", video_uri="a.mp4", start_s=1.0, end_s=2.0),
    ]

    found = seen(jobs, described=["a.mp4", "b.mp4"])

    assert found["a"] == found["b"] == found["a part"]
    assert len(set(found.values())) == 5


def test_a_video_that_was_never_described_or_has_changed_since_is_not_compared(seen):
    found = seen([job("a"), job("b"), job("c")], described=["a.mp4", "b.mp4"], changed="b")

    assert found.keys() == {"a"}


def test_answers_about_chunks_are_not_copied():
    spec = RunSpec(model=ModelIdentity(name="m"), chunk_s=2, chunk_rule="majority", once_per_duplicate=0.9)

    with pytest.raises(ConfigurationError, match="not about chunks; leave it out, or set chunk_s to 0"):
        find_duplicate_jobs(job_table([job("a")]), Settings(), None, spec)
