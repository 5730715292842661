"""The rows of chunks are written and replaced together with the row of their job."""

from dataclasses import replace
from uuid import uuid4

import polars as pl
import pytest
from sqlalchemy import delete, func, select, update

from reelabel.sources.object_store import ObjectStore
from tasks.database.scope import Scope
from tasks.database.tables import CHUNK, FAILURE, RESULT
from tasks.domain.chunks import ChunkOutcome, cut_job, merge_chunks
from tasks.manifest.table import open_jobs
from tasks.results.audit import audit_jobs
from tasks.results.chunks import ChunksOfJob, EarlierChunks, read_earlier_chunks, standing_chunks
from tasks.results.read import read_chunks
from tasks.results.runs import open_run
from tasks.results.write import RunKey, ShardWriter
from tests.results.rows import FACTS, failure, job, result
from tests.results.rows import SPEC as UNCUT

SPEC = UNCUT.model_copy(update={"chunk_s": 60.0, "chunk_rule": "majority"})
SCOPE = Scope(dataset="d", spec_id=SPEC.spec_id)


@pytest.fixture
def run(db):
    key = RunKey(run_id=uuid4(), dataset="d", spec_id=SPEC.spec_id, model="tiny", versions={"av": "18"}, host="h")
    open_run(db, run_id=key.run_id, spec=SPEC, facts=FACTS)
    return key


def film(name="film", length_s=180, **changed):
    return cut_job(job(name, chunk_s=60, **changed), length_s)


def write(db, run, cut, endings, *, rule="majority", earlier=EarlierChunks()):  # noqa: B008 - never changed
    """Write the outcomes of some chunks, by number, and what follows from them."""
    asked = {
        number: ChunkOutcome(job=cut.job, number=number, outcome=replace(ending, job=cut.chunks[number]))
        for number, ending in endings.items()
    }
    row = merge_chunks(cut, earlier.outcomes, asked, rule)
    is_label = hasattr(row, "answer")
    merged_with = {cut.job.job_id: earlier.fences} if cut.job.only_chunks and row.chunks else {}
    chunks = [*asked.values()] if row.chunks else []
    ShardWriter(db, run).write([row] * is_label, [row] * (not is_label), chunks=chunks, merged_with=merged_with)


def rows(db, *columns):
    with db.connect() as connection:
        query = select(*(CHUNK.c[name] for name in columns)).order_by(CHUNK.c.job_id, CHUNK.c.chunk)
        return connection.execute(query).all()


def counts(db, table):
    with db.connect() as connection:
        return connection.execute(select(table.c.chunks, table.c.chunks_answered)).all()


def test_each_chunk_has_a_row_with_its_place_its_answer_and_its_cost(db, run):
    endings = {0: result(job("a")), 1: failure(job("a"), message="\0?"), 2: result(job("a"))}
    write(db, run, film(), endings, rule="any:yes")

    assert rows(db, "chunk", "start_s", "end_s", "label", "code", "message", "decode_ms") == [
        (0, None, 59.9998, "no", None, None, 2),
        (1, 60, 119.9998, None, "no_frames", "\N{REPLACEMENT CHARACTER}?", None),
        (2, 120, None, "no", None, None, 2),
    ]
    assert counts(db, FAILURE) == [(3, 2)]
    assert counts(db, RESULT) == []


def test_a_job_that_is_asked_again_leaves_no_chunk_of_before(db, run):
    write(db, run, film(), dict.fromkeys(range(3), result(job("a"))))
    write(db, run, film(length_s=120), dict.fromkeys(range(2), result(job("a"), fingerprint="e2")))

    assert rows(db, "chunk", "source_fingerprint") == [(0, "e2"), (1, "e2")]
    assert counts(db, RESULT) == [(2, 2)]

    write(db, run, film("hopeless"), dict.fromkeys(range(3), failure(job("a"))))
    write(db, run, film("hopeless", length_s=120), dict.fromkeys(range(2), failure(job("a"))))

    assert rows(db, "job_id", "chunk")[2:] == [("hopeless", 0), ("hopeless", 1)]
    assert counts(db, FAILURE) == [(2, 0)]


def test_a_job_that_fails_as_a_whole_has_no_chunks_left(db, run):
    write(db, run, film(), dict.fromkeys(range(3), failure(job("a"))))

    ShardWriter(db, run).write([], [failure(film().job, code="video_missing")])

    assert rows(db, "chunk") == []


def test_a_failure_that_does_not_replace_a_valid_label_leaves_its_chunks_as_well(db, run):
    write(db, run, film(), dict.fromkeys(range(3), result(job("a"))))

    write(db, run, film(), dict.fromkeys(range(3), failure(job("a"))))

    assert rows(db, "label") == [("no",)] * 3


def test_a_named_chunk_alone_is_replaced_and_the_row_follows_from_all(db, run):
    write(db, run, film("other"), dict.fromkeys(range(3), result(job("a"))))
    write(db, run, film(), {0: result(job("a")), 1: failure(job("a")), 2: failure(job("a"))})
    again = film(only_chunks=(1,))
    earlier = read_earlier_chunks(db, SCOPE, [again])["film"]

    write(db, run, again, {1: result(job("a"), (0.1, 0.9))}, earlier=earlier)

    assert rows(db, "job_id", "chunk", "margin")[:3] == [
        ("film", 0, 0.5),
        ("film", 1, pytest.approx(0.8)),
        ("film", 2, None),
    ]
    names = pl.concat(read_chunks(db, SCOPE))["chunk_id"].to_list()
    assert names == [f"{name}#{number}" for name in ("film", "other") for number in range(3)]
    assert counts(db, RESULT) == [(3, 3), (3, 2)]
    assert counts(db, FAILURE) == []


def test_outcomes_come_back_as_they_were_written_except_those_to_another_question(db, run):
    endings = {
        0: result(job("a"), (0.4, 0.6), frames_used=7, coverage="few"),
        1: failure(job("a")),
        2: result(job("a")),
    }
    write(db, run, film(), endings, rule="any:yes")

    found = read_earlier_chunks(db, SCOPE, [film()])["film"]

    for number, ending in endings.items():
        assert found.outcomes[number].outcome == replace(ending, job=film().chunks[number])
    for other in (film(prompt="Another?"), cut_job(job("film", chunk_s=30), 180)):
        unusable = read_earlier_chunks(db, SCOPE, [other])["film"]
        assert unusable.outcomes.keys() <= set()
        assert unusable.fences == {0: 0, 1: 0, 2: 0}


@pytest.fixture
def standing(db, tmp_path):
    """Return a function that finds the chunks that need not be asked about again, of a manifest's jobs."""

    def standing(*jobs, named=(), now="e1"):
        rows = [{"job_id": each.job_id, "video_uri": each.video_uri, "prompt": each.prompt} for each in jobs]
        pl.DataFrame([row | {"choices": ["yes", "no"]} for row in rows]).write_parquet(tmp_path / "m.parquet")
        with open_jobs(str(tmp_path / "m.parquet"), ObjectStore()) as table:
            look_up = lambda uris: [now] * len(uris)  # noqa: E731
            return standing_chunks(db, SCOPE, table, named=named, fingerprints_of=look_up)

    return standing


def test_of_a_failed_job_the_chunks_without_an_answer_are_found(db, run, standing):
    partial = {0: result(job("a")), 1: failure(job("a")), 2: result(job("a"))}
    write(db, run, film(), partial, rule="any:yes")
    write(db, run, film("hopeless"), dict.fromkeys(range(3), failure(job("a"))))
    write(db, run, film("decided"), partial)

    jobs = [job(name) for name in ("film", "hopeless", "decided", "new")]
    assert standing(*jobs) == {"film": ChunksOfJob(count=3, unanswered=(1,))}
    assert standing(*jobs, now=None) == standing(*jobs)  # removed: not another version
    assert standing(*jobs, named=["hopeless", "decided", "new"]) == {
        "film": ChunksOfJob(count=3, unanswered=(1,)),
        "hopeless": ChunksOfJob(count=3, unanswered=(0, 1, 2)),
        "decided": ChunksOfJob(count=3, unanswered=(1,)),
    }


def test_chunks_about_another_question_or_version_or_that_are_not_all_there_do_not_stand(db, run, standing):
    write(db, run, film(), {0: result(job("a")), 1: failure(job("a")), 2: result(job("a"))}, rule="any:yes")

    assert standing(job("film"))
    assert standing(job("film", prompt="Another?"), named=["film"]) == {}
    assert standing(job("film"), named=["film"], now="e2") == {}
    for name, value in (("source_fingerprint", "e2"), ("job_digest", "~")):
        changed, before = update(CHUNK).where(CHUNK.c.chunk == 2), select(CHUNK.c[name]).where(CHUNK.c.chunk == 2)
        with db.begin() as connection:
            told = connection.execute(before).scalar_one()
            connection.execute(changed.values({name: value}))
        assert standing(job("film"), named=["film"]) == {}
        with db.begin() as connection:
            connection.execute(changed.values({name: told}))
    assert standing(job("film"))
    with db.begin() as connection:
        connection.execute(delete(CHUNK).where(CHUNK.c.chunk == 0))
    assert standing(job("film"), named=["film"]) == {}


def test_a_video_that_was_replaced_leaves_a_failure_and_no_chunks(db, run):
    write(db, run, film(), dict.fromkeys(range(3), result(job("a"))))
    again = film(length_s=120, only_chunks=(1,))
    earlier = read_earlier_chunks(db, SCOPE, [again])["film"]

    write(db, run, again, {1: result(job("a"), fingerprint="e2")}, earlier=earlier)

    assert (counts(db, FAILURE), counts(db, RESULT), rows(db, "chunk")) == ([(None, None)], [], [])
    assert audit_jobs(db, SCOPE, jobs=[again.job]).is_reconciled


def test_a_video_that_is_gone_for_a_while_costs_no_answers(db, run, standing):
    write(db, run, film(), {0: result(job("a")), 1: failure(job("a")), 2: result(job("a"))}, rule="any:yes")

    ShardWriter(db, run).write([], [failure(film(only_chunks=(1,)).job, code="video_missing")])

    assert counts(db, FAILURE) == [(3, 2)]
    assert standing(job("film")) == {"film": ChunksOfJob(count=3, unanswered=(1,))}
    ShardWriter(db, run).write([], [failure(film().job, code="video_missing")])
    assert rows(db, "chunk") == []


@pytest.mark.parametrize(
    ("about", "changed"),
    [
        pytest.param({"prompt": "Another?"}, {}, id="another question"),
        pytest.param({}, {"code": "video_changed"}, id="a video that changed"),
        pytest.param({}, {"source_fingerprint": "e2"}, id="another version"),
    ],
)
def test_a_failure_about_something_else_than_the_chunks_tells_of_none(db, run, about, changed):
    broken = replace(failure(job("a")), source_fingerprint="e1")
    write(db, run, film(), {0: result(job("a")), 1: broken, 2: result(job("a"))}, rule="any:yes")

    failed = replace(failure(film(only_chunks=(1,), **about).job, code="no_frames"), **changed)
    ShardWriter(db, run).write([], [failed])

    assert (counts(db, FAILURE), rows(db, "chunk")) == ([(None, None)], [])


@pytest.mark.parametrize("other", [{"dataset": "e"}, {"spec_id": UNCUT.spec_id}], ids=["dataset", "spec"])
def test_chunks_of_another_dataset_or_spec_stay_and_count_for_nothing(db, run, standing, other):
    elsewhere = replace(run, run_id=uuid4(), **other)
    spec = SPEC if elsewhere.spec_id == SPEC.spec_id else UNCUT
    open_run(db, run_id=elsewhere.run_id, spec=spec, facts=FACTS | {"dataset": elsewhere.dataset})
    write(db, elsewhere, film(), dict.fromkeys(range(3), failure(job("a"))))
    partial = {0: result(job("a")), 1: failure(job("a"))}
    for _ in range(2):
        write(db, run, film(length_s=120), partial, rule="any:yes")

    assert len(rows(db, "chunk")) == 3 + 2
    again = film(length_s=120, only_chunks=(1,))
    earlier = read_earlier_chunks(db, SCOPE, [again])["film"]
    assert (earlier.outcomes.keys(), earlier.fences) == ({0, 1}, {0: 0, 1: 0})
    assert standing(job("film")) == {"film": ChunksOfJob(count=2, unanswered=(1,))}
    report = audit_jobs(db, SCOPE, jobs=[again.job])
    assert (report.is_reconciled, report.chunks, report.chunks_failed) == (True, 2, 1)
    write(db, run, again, {1: result(job("a"))}, rule="any:yes", earlier=earlier)
    assert counts(db, RESULT) == [(2, 2)]


def test_chunks_that_a_removed_row_has_left_are_replaced(db, run):
    write(db, run, film(), dict.fromkeys(range(3), result(job("a"))))
    with db.begin() as connection:
        connection.execute(delete(RESULT))

    write(db, run, film(length_s=120), dict.fromkeys(range(2), result(job("a"))))

    assert rows(db, "chunk") == [(0,), (1,)]


def test_counting_by_spec_sees_jobs_not_chunks(db, run):
    write(db, run, film(), dict.fromkeys(range(3), result(job("a"))))

    with db.connect() as connection:
        assert connection.execute(select(func.count()).select_from(RESULT)).scalar_one() == 1
