"""The rows of chunks: written with the row of their job, and read to merge, list and show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, select, tuple_

from infra.database.connect import database_errors
from reelabel.errors import ConfigurationError
from reelabel.frames.provenance import FrameProvenance
from reelabel.record import columns_of, reader_of
from reelabel.wording import pluralize
from tasks.database.tables import CHUNK
from tasks.database.temp_table import array_literal, copy_rows, storable
from tasks.domain import Answer, Failure, JobResult, Stage
from tasks.domain.chunks import ChunkOutcome

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, Engine, RowMapping

    from tasks.domain import Job
    from tasks.domain.chunks import CutJob

_COLUMNS = ("job_id", "job_digest", "chunk", "start_s", "end_s", "shard_index")
_ANSWERED = (
    *("label", "probabilities", "margin", "entropy_nats", "routed_by"),
    *(column.name for column in columns_of(Answer)),
    *(column.name for column in columns_of(FrameProvenance)),
)
_FAILED = ("source_fingerprint", "stage", "code", "message")
_answer_values, _frame_values = reader_of(Answer), reader_of(FrameProvenance)


def replace_chunks(
    connection: Connection, chunks: Sequence[ChunkOutcome], *, cut_before: set[str], shared: dict[str, Any]
) -> None:
    """Write the rows of chunks, in place of earlier ones.

    Args:
        connection: The transaction that also writes the rows of their jobs.
        chunks: The chunks. A job of which only some were asked about keeps the rows of the others.
        cut_before: Ids of the jobs that are being written and have rows of chunks.
        shared: Values that are the same in all rows.
    """
    if cut_before:
        kept = {chunk.job.job_id for chunk in chunks if chunk.job.only_chunks is not None}
        asked = [(chunk.job.job_id, chunk.number) for chunk in chunks if chunk.job.job_id in kept]
        key = tuple_(CHUNK.c.dataset, CHUNK.c.spec_id) == (shared["dataset"], shared["spec_id"])
        connection.execute(delete(CHUNK).where(key & (CHUNK.c.job_id == func.any([*(cut_before - kept)]))))
        connection.execute(delete(CHUNK).where(key & tuple_(CHUNK.c.job_id, CHUNK.c.chunk).in_(asked)))
    answered = [chunk for chunk in chunks if isinstance(chunk.outcome, JobResult)]
    failed = [chunk for chunk in chunks if isinstance(chunk.outcome, Failure)]
    if answered:
        rows = ((*_key(each), *_answered(each.outcome)) for each in answered)
        copy_rows(connection, CHUNK, (*_COLUMNS, *_ANSWERED), rows, shared=shared)
    if failed:
        rows = ((*_key(each), *_failed(each.outcome)) for each in failed)
        copy_rows(connection, CHUNK, (*_COLUMNS, *_FAILED), rows, shared=shared)


def _key(chunk: ChunkOutcome) -> tuple[Any, ...]:
    part, job = chunk.outcome.job, chunk.job
    return job.job_id, job.digest, chunk.number, part.start_s, part.end_s, chunk.outcome.shard_index


def _answered(result: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a JobResult, which the caller has checked
    answer = result.answer
    return (
        *(result.label, array_literal(map(repr, answer.probabilities)), answer.margin, answer.entropy_nats),
        *(result.routed_by, *_answer_values(answer)),
        *(storable(value) if isinstance(value, str) else value for value in _frame_values(result.provenance)),
    )


def _failed(failure: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a Failure, which the caller has checked
    return failure.source_fingerprint, failure.stage.value, failure.code, storable(failure.message)


def _of_spec(dataset: str, spec_id: str) -> ColumnElement[bool]:
    return tuple_(CHUNK.c.dataset, CHUNK.c.spec_id) == (dataset, spec_id)


def read_chunk_outcomes(
    engine: Engine, jobs: Iterable[CutJob], *, dataset: str, spec_id: str
) -> dict[str, dict[int, ChunkOutcome]]:
    """Read the outcomes of the chunks of some jobs, by job id and number; those to another question are left out.

    Raises:
        DatabaseUnavailableError: Postgres is unavailable.
    """
    cut = {each.job.job_id: each for each in jobs}
    found: dict[str, dict[int, ChunkOutcome]] = {job_id: {} for job_id in cut}
    query = select(CHUNK).where(_of_spec(dataset, spec_id), CHUNK.c.job_id == func.any([*cut]))
    with database_errors(), engine.connect() as connection:
        for row in connection.execute(query).mappings():
            each, number = cut[row["job_id"]], row["chunk"]
            if row["job_digest"] == each.job.digest and number < len(each.chunks):
                outcome = _outcome(row, each.chunks[number])
                found[row["job_id"]][number] = ChunkOutcome(job=each.job, number=number, outcome=outcome)
    return found


def _outcome(row: RowMapping, part: Job) -> JobResult | Failure:
    if row["label"] is None:
        return Failure(
            job=part,
            stage=Stage(row["stage"]),
            code=row["code"],
            message=row["message"],
            shard_index=row["shard_index"],
            source_fingerprint=row["source_fingerprint"],
        )
    answer = {column.attribute: row[column.name] for column in columns_of(Answer)}
    frames = {column.attribute: row[column.name] for column in columns_of(FrameProvenance)}
    return JobResult(
        job=part,
        answer=Answer(probabilities=tuple(row["probabilities"]), **answer),
        provenance=FrameProvenance(**frames),
        shard_index=row["shard_index"],
        routed_by=row["routed_by"] or "",
    )


def chunks_to_ask(
    engine: Engine, named: Mapping[str, Collection[int]], *, dataset: str, spec_id: str, force: bool
) -> dict[str, list[int]]:
    """Return which of the named chunks to ask about again; jobs that were never cut are left out.

    Args:
        engine: The database.
        named: Numbers of chunks, by job id.
        dataset: The dataset.
        spec_id: The spec.
        force: Also those that have an answer.

    Raises:
        ConfigurationError: A job has no such chunk.
        DatabaseUnavailableError: Postgres is unavailable.
    """
    query = select(CHUNK.c.job_id, CHUNK.c.chunk, CHUNK.c.label).where(
        _of_spec(dataset, spec_id), CHUNK.c.job_id == func.any([*named])
    )
    labels: dict[str, dict[int, str | None]] = {}
    with database_errors(), engine.connect() as connection:
        for job_id, number, label in connection.execute(query).tuples():
            labels.setdefault(job_id, {})[number] = label
    for job_id, known in labels.items():
        unknown = sorted(set(named[job_id]) - known.keys())
        if unknown:
            raise ConfigurationError(
                f"{job_id}#{unknown[0]} is not a chunk: {job_id} has {pluralize(len(known), 'chunk')}, "
                f"{job_id}#0 to {job_id}#{max(known)}."
            )
    return {
        job_id: sorted(number for number in named[job_id] if force or known[number] is None)
        for job_id, known in labels.items()
    }
