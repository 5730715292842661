"""The rows of chunks are written and replaced together with the row of their job."""

from dataclasses import replace

import pytest
from sqlalchemy import func, select

from reelabel.errors import ConfigurationError
from tasks.database.tables import CHUNK, FAILURE, RESULT
from tasks.domain.chunks import ChunkOutcome, cut_job, merge_chunks
from tasks.results.chunks import chunks_to_ask, read_chunk_outcomes
from tasks.results.write import ShardWriter
from tests.results.rows import SPEC, failure, job, result

KEY = {"dataset": "d", "spec_id": SPEC.spec_id}


def film(name="film", length_s=180, **changed):
    return cut_job(job(name, chunk_s=60, **changed), length_s)


def write(db, run, cut, endings, *, rule="majority", earlier=None):
    """Write the outcomes of some chunks, by number, and what follows from them."""
    asked = {
        number: ChunkOutcome(job=cut.job, number=number, outcome=replace(ending, job=cut.chunks[number]))
        for number, ending in endings.items()
    }
    row = merge_chunks(cut, earlier or {}, asked, rule)
    is_label = hasattr(row, "answer")
    ShardWriter(db, run).write([row] * is_label, [row] * (not is_label), chunks=[*asked.values()])


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
    earlier = read_chunk_outcomes(db, [again], **KEY)["film"]

    write(db, run, again, {1: result(job("a"), (0.1, 0.9))}, earlier=earlier)

    assert rows(db, "job_id", "chunk", "margin")[:3] == [
        ("film", 0, 0.5),
        ("film", 1, pytest.approx(0.8)),
        ("film", 2, None),
    ]
    assert counts(db, RESULT) == [(3, 3), (3, 2)]
    assert counts(db, FAILURE) == []


def test_outcomes_come_back_as_they_were_written_except_those_to_another_question(db, run):
    endings = {
        0: result(job("a"), (0.4, 0.6), frames_used=7, coverage="few"),
        1: failure(job("a")),
        2: result(job("a")),
    }
    write(db, run, film(), endings, rule="any:yes")

    found = read_chunk_outcomes(db, [film()], **KEY)["film"]

    for number, ending in endings.items():
        assert found[number].outcome == replace(ending, job=film().chunks[number])
    assert read_chunk_outcomes(db, [film(prompt="Another?")], **KEY) == {"film": {}}


def test_a_named_chunk_is_asked_about_if_it_has_no_answer_or_if_that_is_forced(db, run):
    write(db, run, film(), {0: result(job("a")), 1: failure(job("a")), 2: result(job("a"))})
    named = {"film": {1, 2}, "new": {0}}

    assert chunks_to_ask(db, named, **KEY, force=False) == {"film": [1]}
    assert chunks_to_ask(db, named, **KEY, force=True) == {"film": [1, 2]}
    with pytest.raises(ConfigurationError, match="film#9 is not a chunk: film has 3 chunks, film#0 to film#2"):
        chunks_to_ask(db, {"film": {9}}, **KEY, force=False)


def test_counting_by_spec_sees_jobs_not_chunks(db, run):
    write(db, run, film(), dict.fromkeys(range(3), result(job("a"))))

    with db.connect() as connection:
        assert connection.execute(select(func.count()).select_from(RESULT)).scalar_one() == 1
