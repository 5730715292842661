"""The rows of chunks: written with the row of their job, and read to merge, list and show them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlalchemy import ARRAY, Integer, Text, cast, delete, func, select, text, tuple_

from infra.database.connect import database_errors
from reelabel.frames.provenance import FrameProvenance
from reelabel.record import columns_of, names_of, reader_of, values_of
from sql.queries import read_query
from tasks.database.scope import Scope
from tasks.database.tables import CHUNK
from tasks.database.temp_table import array_literal, copy_rows
from tasks.domain import Answer, Failure, JobResult, Stage
from tasks.domain.chunks import ChunkOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from sqlalchemy import Connection, Engine, RowMapping

    from tasks.domain import Job
    from tasks.domain.chunks import CutJob
    from tasks.manifest.table import JobTable

_COLUMNS = ("job_id", "job_digest", "chunk", "start_s", "end_s", "shard_index")
# Of a label, whether of a job or of a chunk.
ANSWER_COLUMNS = ("label", "routed_by", "probabilities", "margin", "entropy_nats", *names_of(Answer))
_FAILED = ("source_fingerprint", "stage", "code", "message")
_CUT_JOBS = text(read_query("cut_jobs"))
_answer_values = reader_of(Answer)


def replace_chunks(
    connection: Connection,
    chunks: Sequence[tuple[ChunkOutcome, int]],
    *,
    replaced: Collection[str],
    shared: dict[str, Any],
) -> None:
    """Write the rows of chunks, each with its fence, in place of earlier ones, in the transaction of their jobs' rows.

    All earlier chunks of the jobs in `replaced` go. A job of which only some were asked about keeps the rows of the
    others. `shared` has the values that are the same in all rows.
    """
    key = Scope(dataset=shared["dataset"], spec_id=shared["spec_id"]).matches(CHUNK)
    if replaced:
        connection.execute(delete(CHUNK).where(key & (CHUNK.c.job_id == func.any([*replaced]))))
    asked = [(chunk.job.job_id, chunk.number) for chunk, _ in chunks if chunk.job.job_id not in replaced]
    if asked:
        # Arrays, since a statement has at most 65,535 parameters.
        ids, numbers = ([*each] for each in zip(*asked, strict=True))
        parts = func.unnest(cast(ids, ARRAY(Text)), cast(numbers, ARRAY(Integer)))
        named = select(parts.table_valued("job_id", "chunk").render_derived())
        of_jobs = key & (CHUNK.c.job_id == func.any([*{*ids}]))  # by the index
        connection.execute(delete(CHUNK).where(of_jobs, tuple_(CHUNK.c.job_id, CHUNK.c.chunk).in_(named)))
    answered = [(chunk, fence) for chunk, fence in chunks if isinstance(chunk.outcome, JobResult)]
    failed = [(chunk, fence) for chunk, fence in chunks if isinstance(chunk.outcome, Failure)]
    if answered:
        rows = ((fence, *_key(each), *_answered(each.outcome)) for each, fence in answered)
        names = ("fence", *_COLUMNS, *ANSWER_COLUMNS, *names_of(FrameProvenance))
        copy_rows(connection, CHUNK, names, rows, shared=shared)
    if failed:
        rows = ((fence, *_key(each), *_failed(each.outcome)) for each, fence in failed)
        copy_rows(connection, CHUNK, ("fence", *_COLUMNS, *_FAILED), rows, shared=shared)


def read_fences(connection: Connection, scope: Scope, job_ids: Collection[str]) -> dict[str, dict[int, int]]:
    """Read the fences of the chunks of some jobs, by job id and number; they change whenever a chunk is written."""
    found: dict[str, dict[int, int]] = {job_id: {} for job_id in job_ids}
    query = select(CHUNK.c.job_id, CHUNK.c.chunk, CHUNK.c.fence).where(
        scope.matches(CHUNK), CHUNK.c.job_id == func.any([*job_ids])
    )
    for job_id, number, fence in connection.execute(query):
        found[job_id][number] = fence
    return found


def _key(chunk: ChunkOutcome) -> tuple[Any, ...]:
    part, job = chunk.outcome.job, chunk.job
    return job.job_id, job.digest, chunk.number, part.start_s, part.end_s, chunk.outcome.shard_index


def answer_values(result: JobResult) -> tuple[Any, ...]:
    """Return the values of `ANSWER_COLUMNS`."""
    answer = result.answer
    probabilities = array_literal(map(repr, answer.probabilities))
    return result.label, result.routed_by, probabilities, answer.margin, answer.entropy_nats, *_answer_values(answer)


def _answered(result: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a JobResult, which the caller has checked
    return *answer_values(result), *values_of(FrameProvenance, result.provenance)


def _failed(failure: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a Failure, which the caller has checked
    return failure.source_fingerprint, failure.stage.value, failure.code, failure.message


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierChunks:
    """The rows of a job's chunks, as they were read.

    Attributes:
        outcomes: The outcomes of those about the same question and the same part of the video, by number.
        fences: The fence of every row, by number.
    """

    outcomes: dict[int, ChunkOutcome] = field(default_factory=dict)
    fences: dict[int, int] = field(default_factory=dict)


def read_earlier_chunks(engine: Engine, scope: Scope, jobs: Iterable[CutJob]) -> dict[str, EarlierChunks]:
    """Read the chunks of some jobs, by job id."""
    cut = {each.job.job_id: each for each in jobs}
    found = {job_id: EarlierChunks() for job_id in cut}
    query = select(CHUNK).where(scope.matches(CHUNK), CHUNK.c.job_id == func.any([*cut]))
    with database_errors(), engine.connect() as connection:
        for row in connection.execute(query).mappings():
            each, number = cut[row["job_id"]], row["chunk"]
            found[row["job_id"]].fences[number] = row["fence"]
            part = each.chunks[number] if number < len(each.chunks) else None
            if part and (row["job_digest"], row["start_s"], row["end_s"]) == (
                each.job.digest,
                part.start_s,
                part.end_s,
            ):
                outcome = ChunkOutcome(job=each.job, number=number, outcome=_outcome(row, part))
                found[row["job_id"]].outcomes[number] = outcome
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunksOfJob:
    """The chunks of a job that was cut, by their rows.

    Attributes:
        count: How many there are.
        unanswered: Numbers of those without an answer, ascending.
    """

    count: int
    unanswered: tuple[int, ...]


def standing_chunks(
    engine: Engine,
    scope: Scope,
    jobs: JobTable,
    *,
    named: Collection[str],
    fingerprints_of: Callable[[Sequence[str]], Sequence[str | None]],
) -> dict[str, ChunksOfJob]:
    """Find the jobs whose chunks need not all be asked about again, by job id.

    They are those of `jobs` that are named, or failed although some chunks have an answer, and whose chunks are all
    there and about the same question and the same version of the video as today's (`fingerprints_of` is as for
    `pending_jobs`). As for labels, a video that was removed does not count as another version.
    """
    key = {**scope.key, "named": [*named]}
    with database_errors(), engine.connect() as connection:
        cut = {row.job_id: row for row in connection.execute(_CUT_JOBS, key) if row.is_whole}
    if not cut:
        return {}
    columns = ("job_id", "job_digest", "video_uri")
    found = pl.concat([part.select(columns) for part in jobs.with_ids(cut).parts()], rechunk=False)
    uris = found["video_uri"].unique().sort().to_list()
    now = dict(zip(uris, fingerprints_of(uris), strict=True))
    return {
        job_id: ChunksOfJob(count=cut[job_id].chunks, unanswered=tuple(cut[job_id].unanswered))
        for job_id, digest, uri in found.iter_rows()
        if cut[job_id].job_digest == digest and _is_current(cut[job_id].fingerprints, now[uri])
    }


def _is_current(fingerprints: Sequence[str], now: str | None) -> bool:
    return len(fingerprints) <= 1 and (now is None or now in (fingerprints or [now]))
