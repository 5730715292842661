"""The rows of chunks are written and replaced together with the row of their job."""

from dataclasses import replace
from uuid import uuid4

import polars as pl
import pytest
from sqlalchemy import delete, func, select

from tasks.database.scope import Scope
from tasks.database.tables import CHUNK, FAILURE, RESULT
from tasks.domain import OrderBias, Shard
from tasks.domain.chunks import ChunkOutcome, CutShard, CutVideo, cut_job, merge_chunks
from tasks.results.audit import audit_jobs
from tasks.results.chunks import read_answered_chunks
from tasks.results.read import read_chunks
from tasks.results.runs import open_run
from tasks.results.write import RunKey, ShardWriter
from tests.results.rows import FACTS, failure, job, result
from tests.results.rows import SPEC as UNCUT

SPEC = UNCUT.model_copy(update={"chunk_s": 60.0, "chunk_rule": "majority"})
SCOPE = Scope(dataset="d", spec_id=SPEC.spec_id)


@pytest.fixture
def run(db):
    key = RunKey(run_id=uuid4(), dataset="d", spec_id=SPEC.spec_id, host="h")
    open_run(db, run_id=key.run_id, spec=SPEC, facts=FACTS)
    return key


def film(name="film", length_s=180, **changed):
    return cut_job(job(name, chunk_s=60, **changed), length_s)


def write(db, run, cut, endings, *, rule="majority"):
    """Write the outcomes of the chunks, by number, and what follows from them."""
    outcomes = [
        ChunkOutcome(job=cut.job, number=number, outcome=replace(endings[number], job=part))
        for number, part in enumerate(cut.chunks)
    ]
    row = merge_chunks(cut, outcomes, rule)
    is_label = hasattr(row, "answer")
    ShardWriter(db, run).write([row] * is_label, [row] * (not is_label), chunks=outcomes if row.chunks else [])


def answered(db, cut, fingerprint="e1"):
    """Read the answers that a shard with a job need not ask for again."""
    videos = {cut.job.video_uri: CutVideo(180, fingerprint)}
    shard = CutShard(shard=Shard(index=0, jobs=()), jobs={cut.job.job_id: cut}, videos=videos)
    return read_answered_chunks(db, SCOPE, shard)


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


def test_a_job_that_fails_as_a_whole_leaves_no_chunks_without_an_answer(db, run):
    write(db, run, film(), dict.fromkeys(range(3), failure(job("a"))))

    ShardWriter(db, run).write([], [failure(film().job, code="video_missing")])

    assert rows(db, "chunk") == []


def test_a_failure_that_does_not_replace_a_valid_label_leaves_its_chunks_as_well(db, run):
    write(db, run, film(), dict.fromkeys(range(3), result(job("a"))))

    write(db, run, film(), dict.fromkeys(range(3), failure(job("a"))))

    assert rows(db, "label") == [("no",)] * 3


def test_answers_come_back_as_they_were_written_and_failures_do_not(db, run):
    endings = {
        0: result(job("a"), (0.4, 0.6), frames_used=7, coverage="few"),
        1: failure(job("a")),
        2: result(job("a"), order=OrderBias(permutations=2, agreement=0.5, spread=0.25, same_position=True)),
    }
    write(db, run, film("other"), dict.fromkeys(range(3), result(job("a"))))
    write(db, run, film(), endings, rule="any:yes")

    found = answered(db, film())

    assert found == {f"film#{number}": replace(endings[number], job=film().chunks[number]) for number in (0, 2)}
    names = pl.concat(read_chunks(db, SCOPE))["chunk_id"].to_list()
    assert names == [f"{name}#{number}" for name in ("film", "other") for number in range(3)]


def test_answers_to_another_question_or_about_another_part_or_version_are_asked_for_again(db, run):
    write(db, run, film(), dict.fromkeys(range(3), result(job("a"))))

    assert answered(db, film()).keys() == {"film#0", "film#1", "film#2"}
    assert answered(db, film(prompt="Another?")) == {}
    assert answered(db, cut_job(job("film", chunk_s=30), 180)) == {}
    assert answered(db, film(length_s=120)).keys() == {"film#0"}  # the next one now reaches to the end
    assert answered(db, film(), fingerprint="e2") == {}
    assert answered(db, film(asks_again=True)) == {}


def test_a_video_that_was_replaced_leaves_a_failure_and_no_chunks(db, run):
    write(db, run, film(), dict.fromkeys(range(3), result(job("a"))))
    again = film(length_s=120)

    write(db, run, again, {0: result(job("a")), 1: result(job("a"), fingerprint="e2")})

    assert (counts(db, FAILURE), counts(db, RESULT), rows(db, "chunk")) == ([(None, None)], [], [])
    assert audit_jobs(db, SCOPE, jobs=[again.job]).is_reconciled


def test_a_video_that_is_gone_for_a_while_costs_no_answers(db, run):
    write(db, run, film(), {0: result(job("a")), 1: failure(job("a")), 2: result(job("a"))}, rule="any:yes")

    ShardWriter(db, run).write([], [failure(film().job, code="video_missing")])

    assert counts(db, FAILURE) == [(3, 2)]
    assert answered(db, film()).keys() == {"film#0", "film#2"}


@pytest.mark.parametrize(
    ("about", "changed"),
    [
        pytest.param({"prompt": "Another?"}, {}, id="another question"),
        pytest.param({}, {"code": "video_changed"}, id="a video that changed"),
        pytest.param({}, {"source_fingerprint": "e2"}, id="another version"),
    ],
)
def test_a_failure_about_something_else_than_the_chunks_mentions_none(db, run, about, changed):
    broken = replace(failure(job("a")), source_fingerprint="e1")
    write(db, run, film(), {0: result(job("a")), 1: broken, 2: result(job("a"))}, rule="any:yes")

    failed = replace(failure(film(**about).job, code="no_frames"), **changed)
    ShardWriter(db, run).write([], [failed])

    assert (counts(db, FAILURE), rows(db, "chunk")) == ([(None, None)], [])


@pytest.mark.parametrize("other", [{"dataset": "e"}, {"spec_id": UNCUT.spec_id}], ids=["dataset", "spec"])
def test_chunks_of_another_dataset_or_spec_stay_and_count_for_nothing(db, run, other):
    elsewhere = replace(run, run_id=uuid4(), **other)
    spec = SPEC if elsewhere.spec_id == SPEC.spec_id else UNCUT
    open_run(db, run_id=elsewhere.run_id, spec=spec, facts=FACTS | {"dataset": elsewhere.dataset})
    write(db, elsewhere, film(), dict.fromkeys(range(3), failure(job("a"))))
    again = film(length_s=120)
    for _ in range(2):
        write(db, run, again, {0: result(job("a")), 1: failure(job("a"))}, rule="any:yes")

    assert len(rows(db, "chunk")) == 3 + 2
    assert answered(db, again).keys() == {"film#0"}
    report = audit_jobs(db, SCOPE, jobs=[again.job])
    assert (report.is_reconciled, report.chunks, report.chunks_failed) == (True, 2, 1)


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
