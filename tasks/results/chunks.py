"""The rows of chunks: written with the row of their job, and read so that no chunk is answered twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, select

from infra.database.connect import database_errors
from tasks.database.scope import Scope
from tasks.database.tables import CHUNK
from tasks.database.temp_table import array_literal, copy_rows
from tasks.domain import Answer, Failure, JobResult, OrderBias
from tasks.domain.provenance import FrameProvenance
from tasks.domain.record import columns_of, names_of, reader_of, values_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import Connection, Engine, RowMapping

    from tasks.domain import Job
    from tasks.domain.chunks import ChunkOutcome, CutShard

_COLUMNS = ("job_id", "job_digest", "chunk", "start_s", "end_s", "shard_index")
# Columns of a label, of a job or of a chunk.
ANSWER_COLUMNS = ("label", "routed_by", "probabilities", "margin", "entropy_nats", *names_of(Answer, OrderBias))
_ONE_ORDER = (1, None, None, None)  # in place of an `OrderBias`
_FAILED = ("source_fingerprint", "stage", "code", "message")
_answer_values = reader_of(Answer)


def replace_chunks(
    connection: Connection,
    chunks: Sequence[tuple[ChunkOutcome, int]],
    *,
    replaced: Collection[str],
    shared: dict[str, Any],
) -> None:
    """Write the rows of chunks, each with its fence, in the transaction of their jobs' rows.

    All earlier chunks of the jobs in `replaced` are deleted. `shared` has the values that are the same in all rows.
    """
    if replaced:
        key = Scope(dataset=shared["dataset"], spec_id=shared["spec_id"]).matches(CHUNK)
        connection.execute(delete(CHUNK).where(key & (CHUNK.c.job_id == func.any([*replaced]))))
    outcomes = [(chunk, chunk.outcome, fence) for chunk, fence in chunks]
    answered = [(chunk, each, fence) for chunk, each, fence in outcomes if isinstance(each, JobResult)]
    failed = [(chunk, each, fence) for chunk, each, fence in outcomes if isinstance(each, Failure)]
    if answered:
        rows = (
            (fence, *_key(each), *answer_values(result), *values_of(FrameProvenance, result.provenance))
            for each, result, fence in answered
        )
        names = ("fence", *_COLUMNS, *ANSWER_COLUMNS, *names_of(FrameProvenance))
        copy_rows(connection, CHUNK, names, rows, shared=shared)
    if failed:
        rows = (
            (fence, *_key(each), failure.source_fingerprint, failure.stage.value, failure.code, failure.message)
            for each, failure, fence in failed
        )
        copy_rows(connection, CHUNK, ("fence", *_COLUMNS, *_FAILED), rows, shared=shared)


def _key(chunk: ChunkOutcome) -> tuple[Any, ...]:
    part, job = chunk.outcome.job, chunk.job
    return job.job_id, job.digest, chunk.number, part.start_s, part.end_s, chunk.outcome.shard_index


def answer_values(result: JobResult) -> tuple[Any, ...]:
    """Return the values of `ANSWER_COLUMNS`."""
    answer = result.answer
    probabilities = array_literal(map(repr, answer.probabilities)) if answer.probabilities else None
    return (
        *(result.label, result.routed_by, probabilities, answer.margin, answer.entropy_nats),
        *_answer_values(answer),
        *(values_of(OrderBias, answer.order) if answer.order else _ONE_ORDER),
    )


def read_answered_chunks(engine: Engine, scope: Scope, cut: CutShard) -> dict[str, JobResult]:
    """Read the answers that chunks of a shard's jobs already have, by the chunk's id.

    They are about the same question, the same part and the same version of the video.
    """
    jobs = {job_id: each for job_id, each in cut.jobs.items() if not each.job.asks_again}
    if not jobs:
        return {}
    query = select(CHUNK).where(scope.matches(CHUNK), CHUNK.c.job_id == func.any([*jobs]), CHUNK.c.label.is_not(None))
    found: dict[str, JobResult] = {}
    with database_errors(), engine.connect() as connection:
        rows = connection.execute(query).mappings().all()
    for row in rows:
        each, number = jobs[row["job_id"]], row["chunk"]
        if number >= len(each.chunks):
            continue
        part, fingerprint = each.chunks[number], cut.videos[each.job.video_uri].fingerprint
        now = (each.job.digest, part.start_s, part.end_s, fingerprint)
        if now == tuple(row[name] for name in ("job_digest", "start_s", "end_s", "source_fingerprint")):
            found[part.job_id] = _result(row, part, cut.shard.index)
    return found


def _result(row: RowMapping, part: Job, shard_index: int) -> JobResult:
    answer, order, frames = (
        {column.attribute: row[column.name] for column in columns_of(record)}
        for record in (Answer, OrderBias, FrameProvenance)
    )
    if order["permutations"] > 1:
        answer["order"] = OrderBias(**order)
    return JobResult(
        job=part,
        answer=Answer(probabilities=tuple(row["probabilities"]), **answer),
        provenance=FrameProvenance(**frames),
        shard_index=shard_index,
        routed_by=row["routed_by"] or "",
    )
