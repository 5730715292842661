"""Several backfills of one job's chunks at once: no answer is lost, and the row follows from all chunks."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Barrier
from types import SimpleNamespace

import pytest
from sqlalchemy import select

from flows.shard.answering import InferenceContext, ShardOutcome
from flows.shard.chunks import merge_ended
from flows.shard.tasks import _write
from infra.errors import ChunksOutdatedError
from tasks.database.tables import CHUNK, FAILURE, RESULT
from tasks.domain import Shard
from tasks.domain.chunks import cut_shard
from tasks.plans.lease import Work, claim
from tasks.results.write import ShardWriter
from tests.results.rows import SPEC, failure, job, result

CHUNKS = 6


@pytest.fixture
def backfill(db, run, make_plan):
    """Return a function that leases the job for some of its chunks, or for all.

    What it returns merges, and returns what writes; or does both, as a run does.
    """

    def backfill(*numbers, ending=result):
        lease = claim(db, make_plan(shards=1).plan_id, Work.BOTH, holder="here", lease_s=600)
        film = job("film", chunk_s=60, only_chunks=numbers or None)
        cut = cut_shard(Shard(index=0, jobs=(film,)), {film.video_uri: 60 * CHUNKS})
        endings = [replace(ending(film), job=asked) for asked in cut.shard.jobs]
        labels = [each for each in endings if hasattr(each, "answer")]
        outcome = ShardOutcome(index=0, results=labels, failures=[each for each in endings if each not in labels])
        spec = SPEC.model_copy(update={"chunk_s": 60, "chunk_rule": "any:yes"})
        context = SimpleNamespace(spec=spec, writer=ShardWriter(db, run))
        context.earlier_chunks = partial(InferenceContext.earlier_chunks, context)

        def merge(*, and_write=False):
            if and_write:
                extracted = SimpleNamespace(between_s=(0.0, 0.0))
                return _write(cut, extracted, outcome, context, lease=lease, facts={})
            ended = merge_ended(cut, outcome, context, fence=lease.token)
            return lambda: context.writer.write(
                ended.results, ended.failures, chunks=ended.chunks, merged_with=ended.merged_with, lease=lease
            )

        return merge

    return backfill


def answered(db):
    """Return the numbers of the chunks with an answer, and of how many the rows of the job tell."""
    with db.connect() as connection:
        chunks = connection.execute(select(CHUNK.c.chunk).where(CHUNK.c.label.is_not(None)).order_by(CHUNK.c.chunk))
        told = [
            (table.name, *row)
            for table in (RESULT, FAILURE)
            for row in connection.execute(select(table.c.chunks_answered))
        ]
        return [number for (number,) in chunks], told


@pytest.mark.parametrize("first", [0, 1], ids=["the older lease writes first", "the newer lease writes first"])
def test_backfills_of_different_chunks_are_merged_whichever_writes_first(db, backfill, first):
    backfill(ending=failure)()()
    merges = [backfill(0), backfill(1)]
    writes = [merge() for merge in merges]

    writes[first]()
    with pytest.raises(ChunksOutdatedError):
        writes[1 - first]()
    assert answered(db) == ([first], [("failure", 1)])
    merges[1 - first]()()

    assert answered(db) == ([0, 1], [("failure", 2)])


def test_an_older_answer_to_a_chunk_never_replaces_a_newer_one(db, backfill):
    backfill(ending=failure)()()
    older, newer = backfill(0, 1, ending=failure), backfill(0)

    newer()()
    older()()

    assert answered(db) == ([0], [("failure", 1)])
    with db.connect() as connection:
        fences = connection.execute(select(CHUNK.c.fence).order_by(CHUNK.c.chunk).limit(3)).scalars().all()
    assert fences[0] > fences[1] > fences[2]


def test_an_older_backfill_of_chunks_changes_nothing_of_a_newer_answer_to_the_whole_job(db, backfill):
    backfill(ending=failure)()()
    older, newer = backfill(0), backfill()

    newer()()
    older()()

    assert answered(db) == ([*range(CHUNKS)], [("result", CHUNKS)])
    with db.connect() as connection:
        assert len(set(connection.execute(select(CHUNK.c.fence)).scalars())) == 1


def test_backfills_of_all_chunks_at_the_same_moment_lose_none(db, backfill):
    backfill(ending=failure)()()
    merges, begin = [backfill(number) for number in range(CHUNKS)], Barrier(CHUNKS)

    def run(merge):
        begin.wait()
        return merge(and_write=True)

    with ThreadPoolExecutor(CHUNKS) as threads:
        list(threads.map(run, merges))

    assert answered(db) == ([*range(CHUNKS)], [("result", CHUNKS)])
