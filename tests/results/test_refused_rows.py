"""An outcome that Postgres refuses, or that no row can be made of, costs its own job."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import polars as pl
import pytest
from sqlalchemy import select

from tasks.database.scope import Scope
from tasks.database.tables import SHARD
from tasks.domain.chunks import ChunkOutcome, cut_job, merge_chunks
from tasks.plans.lease import Work, claim
from tasks.results.read import read_chunks, read_descriptions, read_failures, read_results
from tasks.results.runs import open_run
from tasks.results.write import RunKey, ShardWriter
from tests.results.rows import FACTS, SCOPE, SPEC, failure, job, record_plan, result
from tests.results.test_descriptions import SCOPE as SCOPE_OF_DESCRIPTIONS
from tests.results.test_descriptions import SPEC as SPEC_OF_DESCRIPTIONS
from tests.results.test_descriptions import described, film

BAD = job("bad")
GOOD = [job(f"good {number}") for number in range(5)]
REFUSED = [
    pytest.param(result(BAD, frames_used=2**40), id="a number out of the range of its column"),
    pytest.param(result(BAD, frames_decoded=-1), id="a check of the table"),
    pytest.param(result(BAD, frames_used=None), id="a null"),
    pytest.param(result(BAD, decode_method=object()), id="a value without a form in Postgres"),
    pytest.param(replace(result(BAD), answer=None), id="an answer that no row can be made of"),
    pytest.param(replace(failure(BAD), stage=None), id="a failure that no row can be made of"),
]


def claimed(db, run, *, kind="classify", jobs=6):
    """Return the lease of a shard of its own plan."""
    plan = record_plan(db, run, [jobs], kind=kind)
    return claim(db, plan.plan_id, Work.BOTH, holder="h", lease_s=60)


@pytest.mark.parametrize("outcome", REFUSED)
def test_a_refused_outcome_fails_its_job_alone_and_the_report_counts_it(db, run, outcome, caplog):
    lease = claimed(db, run)
    ended = [*map(result, GOOD[:3]), *map(failure, GOOD[3:]), outcome]
    labels = [each for each in ended if hasattr(each, "answer")]
    failures = [each for each in ended if not hasattr(each, "answer")]
    tally = {"jobs_labelled": len(labels), "jobs_failed": len(failures), "gpu_ms": 1.5}

    refused = ShardWriter(db, run).write(labels, failures, lease=lease, report={"tally": tally, "gpus": 1})

    assert [*refused] == ["bad"]
    assert read_results(db, SCOPE)["job_id"].to_list() == ["good 0", "good 1", "good 2"]
    rows = read_failures(db, SCOPE).select("job_id", "code").rows()
    assert rows == [("bad", "internal"), ("good 3", "no_frames"), ("good 4", "no_frames")]
    [message] = read_failures(db, SCOPE).filter(job_id="bad")["message"]
    assert message.startswith("Storing the outcome of job bad failed with an unexpected ")
    assert "Storing the outcome of job bad failed" in caplog.text
    with db.connect() as connection:
        [(state, counted)] = connection.execute(select(SHARD.c.state, SHARD.c.report)).all()
    assert (state, counted) == ("done", {"tally": {"jobs_labelled": 3, "jobs_failed": 3, "gpu_ms": 1.5}, "gpus": 1})


def test_a_job_that_has_a_row_and_is_refused_again_fails_alone(db, run):
    outcomes = [result(BAD, frames_used=2**40)]
    ShardWriter(db, run).write([*outcomes, result(GOOD[0])], [], lease=claimed(db, run))

    refused = ShardWriter(db, run).write([*outcomes, result(GOOD[1])], [], lease=claimed(db, run))

    assert [*refused] == ["bad"]
    assert read_results(db, SCOPE)["job_id"].to_list() == ["good 0", "good 1"]
    assert read_failures(db, SCOPE).select("job_id", "code", "attempts").rows() == [("bad", "internal", 2)]


def test_shards_that_are_written_together_lose_the_refused_jobs_alone(db, run):
    writer, bad = ShardWriter(db, run), [job(f"bad {number}") for number in range(4)]

    def write(number):
        return writer.write([result(job(f"good {number}")), result(bad[number], frames_used=-(2**40))], [])

    with ThreadPoolExecutor(4) as threads:
        refused = list(threads.map(write, range(4)))

    assert [[*each] for each in refused] == [[each.job_id] for each in bad]
    assert read_results(db, SCOPE)["job_id"].to_list() == [f"good {number}" for number in range(4)]
    assert set(read_failures(db, SCOPE)["code"]) == {"internal"}


def test_a_refused_chunk_fails_its_job_alone(db, run):
    spec = SPEC.model_copy(update={"chunk_s": 60.0, "chunk_rule": "majority"})
    run = replace(run, spec_id=spec.spec_id)
    open_run(db, run_id=run.run_id, spec=spec, facts=FACTS)
    labels, chunks = [], []
    for name, used in (("bad", 2**40), ("good", 4)):
        cut = cut_job(job(name, chunk_s=60), 180)
        outcomes = [
            ChunkOutcome(job=cut.job, number=number, outcome=result(part, frames_used=used))
            for number, part in enumerate(cut.chunks)
        ]
        labels.append(replace(merge_chunks(cut, outcomes, "majority"), provenance=result(job("a")).provenance))
        chunks += outcomes

    refused = ShardWriter(db, run).write(labels, [], chunks=chunks)

    scope = Scope(dataset="d", spec_id=spec.spec_id)
    assert [*refused] == ["bad"]
    assert read_results(db, scope)["job_id"].to_list() == ["good"]
    assert pl.concat(read_chunks(db, scope))["job_id"].to_list() == ["good"] * 3
    assert read_failures(db, scope)["job_id"].to_list() == ["bad"]


def test_a_refused_description_fails_its_job_alone(db):
    run = RunKey(run_id=uuid4(), dataset="d", spec_id=SPEC_OF_DESCRIPTIONS.spec_id, host="h")
    open_run(db, run_id=run.run_id, spec=SPEC_OF_DESCRIPTIONS, facts=FACTS | {"kind": "describe"})
    videos = [described(film("good")), described(film("bad"), duration_s=-1.0), described(film("other"))]

    refused = ShardWriter(db, run).write([], [], descriptions=videos)

    assert [*refused] == ["bad"]
    assert read_descriptions(db, SCOPE_OF_DESCRIPTIONS)["job_id"].to_list() == ["good", "other"]
    assert read_failures(db, SCOPE_OF_DESCRIPTIONS).select("job_id", "code").rows() == [("bad", "internal")]


@pytest.mark.parametrize("sign", ["\0", "\ud800"], ids=["NUL", "surrogate"])
def test_what_postgres_cannot_store_in_a_text_is_replaced(db, run, sign):
    labels = [result(job("a"), decode_note=f"No{sign}.", fingerprint=f"e{sign}")]
    failures = [failure(job("b"), message=f"Not{sign} found.")]

    refused = ShardWriter(db, run).write(labels, failures)

    assert refused == {}
    assert read_results(db, SCOPE).select("decode_note", "source_fingerprint").rows() == [("No\ufffd.", "e\ufffd")]
    assert read_failures(db, SCOPE)["message"].to_list() == ["Not\ufffd found."]
