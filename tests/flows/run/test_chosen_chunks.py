"""Which chunks a run asks about: those without an answer, and those that a backfill names."""

from dataclasses import replace
from uuid import uuid4

import polars as pl
import pytest

from flows.run.selection import BaseRun, Choice, JobSelector
from infra.settings import Settings
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from tasks.domain.chunks import ChunkOutcome, cut_job, merge_chunks
from tasks.frame_cache.fingerprints import current_fingerprints
from tasks.manifest.table import open_jobs
from tasks.results.runs import open_run
from tasks.results.selection import Selection
from tasks.results.write import RunKey, ShardWriter
from tests.results.rows import FACTS, SPEC, failure, ids_of, job, result

CUT = SPEC.model_copy(update={"chunk_s": 60.0, "chunk_rule": "any:yes"})
JOBS = ("film", "done", "new", "changed")


@pytest.fixture
def choose(db, tmp_path):
    """Return a function that chooses chunks of three films that were cut, one of which was replaced, and of a new one.

    Of `film` and `changed`, the first chunk has an answer, and two have none; `done` has three.
    """
    objects = ObjectStore()
    run = RunKey(run_id=uuid4(), dataset="d", spec_id=CUT.spec_id, model="tiny", versions={}, host="h")
    open_run(db, run_id=run.run_id, spec=CUT, facts=FACTS)
    videos = {name: tmp_path / f"{name}.mp4" for name in JOBS}
    for path in videos.values():
        path.write_text("?")
    rows = [{"job_id": name, "video_uri": str(path), "prompt": "?"} for name, path in videos.items()]
    pl.DataFrame([row | {"choices": ["yes", "no"]} for row in rows]).write_parquet(tmp_path / "m.parquet")
    for name, failed in {"film": (1, 2), "changed": (1, 2), "done": ()}.items():
        cut = cut_job(job(name, chunk_s=60, video_uri=str(videos[name])), 180)
        (now,) = current_fingerprints(objects, [str(videos[name])])
        asked = {}
        for number, part in enumerate(cut.chunks):
            ending = (
                replace(failure(part), source_fingerprint=now) if number in failed else result(part, fingerprint=now)
            )
            asked[number] = ChunkOutcome(job=cut.job, number=number, outcome=ending)
        row = merge_chunks(cut, {}, asked, CUT.chunk_rule)
        ShardWriter(db, run).write([row] * (not failed), [row] * bool(failed), chunks=[*asked.values()])
    videos["changed"].write_text("another one")

    def choose(*ids, pending=("film", "new", "changed"), force=False, **selection):
        parts = {"earlier": BaseRun(dataset="d", spec=CUT), "settings": Settings()}
        is_backfill = ids or selection
        selector = JobSelector(selection=Selection(**selection), named=ids, **parts) if is_backfill else None
        with open_jobs(str(tmp_path / "m.parquet"), objects) as table:
            choice = Choice(selected=table, pending=table if force else table.with_ids(pending), force=force)
            only, jobs = choice.by_chunks(db, objects, run, CUT, selector=selector)
            return only, ids_of(jobs)

    return choose


def test_a_failed_job_is_asked_about_its_chunks_without_an_answer_unless_its_video_has_changed(choose):
    assert choose() == ({"film": [1, 2]}, ["film", "new", "changed"])
    assert choose(failed=True) == choose()


def test_force_asks_about_all_chunks(choose):
    assert choose(force=True, failed=True) == ({}, [*JOBS])


@pytest.mark.parametrize(
    ("ids", "only", "jobs"),
    [
        pytest.param(["film#2"], [2], ["film", "new", "changed"], id="without an answer"),
        pytest.param(["film#0"], None, ["new", "changed"], id="with one"),
        pytest.param(["film#0", "film#1"], [1], ["film", "new", "changed"], id="one of both"),
        pytest.param(["film#1", "film#2"], [1, 2], ["film", "new", "changed"], id="both"),
        pytest.param(["film", "film#1"], [1, 2], ["film", "new", "changed"], id="also as a whole"),
        pytest.param(["changed#1", "new#7"], [1, 2], ["film", "new", "changed"], id="that stand for the whole job"),
    ],
)
def test_a_named_chunk_is_asked_about_if_it_has_no_answer(choose, ids, only, jobs):
    found = choose(*ids)

    assert (found[0].get("film"), found[1]) == (only, jobs)
    assert found[0].keys() <= {"film"}


def test_a_named_chunk_is_asked_about_again_by_force(choose):
    only, jobs = choose("film#0", "done#2", pending=(), force=True)

    assert only == {"film": [0], "done": [2]}
    assert jobs == [*JOBS]


def test_failed_jobs_are_asked_about_all_chunks_without_an_answer_although_one_is_named(choose):
    assert choose("film#1", failed=True)[0] == {"film": [1, 2]}


def test_a_chunk_that_does_not_exist_is_refused(choose):
    with pytest.raises(ConfigurationError, match="film#3 is not a chunk: film has 3 chunks, film#0 to film#2"):
        choose("film#3", "film#999999999")


class Counted(list):
    """Counts how often it is gone through."""

    times = 0

    def __iter__(self):
        self.times += 1
        return super().__iter__()


def test_ids_of_a_file_are_gone_through_once_and_not_for_each_of_them():
    named = Counted([*(f"film-{number}#1" for number in range(20)), "film-3"])
    parts = {"earlier": BaseRun(dataset="d", spec=CUT), "settings": Settings()}

    chunks = JobSelector(selection=Selection(), named=named, **parts).named_chunks(CUT)

    assert chunks == {f"film-{number}": {1} for number in range(20) if number != 3}
    assert named.times <= 2
