"""Writing how a shard's jobs ended, in one transaction."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, func, select, tuple_
from sqlalchemy.dialects.postgresql import insert

from infra.database import database_errors
from tasks.results.tables import FAILURE, RESULT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from sqlalchemy import Connection, Engine, Table

    from tasks.domain import Failure, JobResult, OrderBias

_KEY = ("dataset", "job_id", "spec_id")
_TIMINGS = ("fetch_ms", "decode_ms", "cache_write_ms", "cache_read_ms")
_COPIED = (*_TIMINGS, "keyframes_in_file", "frames_used", "shard_index", "decode_method", "decode_note")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKey:
    """What every row of a run carries."""

    run_id: UUID
    dataset: str
    spec_id: str
    model: str
    versions: dict[str, str]
    host: str


def write_shard(
    engine: Engine,
    *,
    run: RunKey,
    results: Sequence[JobResult],
    failures: Sequence[Failure],
) -> None:
    """Write labels and failures; a job that had the other before loses it in the same transaction.

    A failure never takes the place of a label that was given for the same question and the same
    video, or for the same question while the video is gone.

    Safe to call again: rows are replaced, never doubled, and a failure counts its attempts.

    Raises:
        DatabaseUnavailableError: Nothing was written.
    """
    with database_errors(), engine.begin() as connection:
        # Two writers of one dataset and spec could otherwise give a job a label and a failure at once.
        lock = func.pg_advisory_xact_lock(func.hashtextextended(f"{run.dataset}/{run.spec_id}", 0))
        connection.execute(select(lock))
        _upsert(connection, RESULT, [_result_row(run, result) for result in results])
        _drop(connection, FAILURE, run, [result.job.job_id for result in results])
        standing = _standing(connection, run, failures)
        recorded = [failure for failure in failures if failure.job.job_id not in standing]
        _upsert(connection, FAILURE, [_failure_row(run, failure) for failure in recorded])
        _drop(connection, RESULT, run, [failure.job.job_id for failure in recorded])


def _upsert(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    statement = insert(table)
    changes: dict[str, Any] = {name: statement.excluded[name] for name in rows[0] if name not in _KEY}
    changes["created_at"] = func.now()
    if "attempts" in table.c:
        changes["attempts"] = table.c.attempts + 1
    connection.execute(statement.on_conflict_do_update(index_elements=_KEY, set_=changes), rows)


def _standing(connection: Connection, run: RunKey, failures: Sequence[Failure]) -> set[str]:
    """Name the failed jobs that have a label which is still valid."""
    if not failures:
        return set()
    asked = {failure.job.job_id: failure for failure in failures}
    query = select(RESULT.c.job_id, RESULT.c.job_digest, RESULT.c.source_fingerprint).where(
        tuple_(RESULT.c.dataset, RESULT.c.spec_id) == (run.dataset, run.spec_id),
        RESULT.c.job_id == func.any(list(asked)),
    )
    return {
        row.job_id
        for row in connection.execute(query)
        if row.job_digest == asked[row.job_id].job.digest
        and asked[row.job_id].source_fingerprint in {row.source_fingerprint, None}
    }


def _drop(connection: Connection, table: Table, run: RunKey, job_ids: list[str]) -> None:
    if job_ids:
        key = tuple_(table.c.dataset, table.c.spec_id) == (run.dataset, run.spec_id)
        connection.execute(delete(table).where(key, table.c.job_id == func.any(job_ids)))


def _result_row(run: RunKey, result: JobResult) -> dict[str, Any]:
    answer = asdict(result.answer)
    del answer["order"]
    return {
        **asdict(run),
        **answer,
        **_order_columns(result.answer.order),
        **{name: getattr(result, name) for name in _COPIED},
        "probabilities": list(result.answer.probabilities),
        "job_id": result.job.job_id,
        "job_digest": result.job.digest,
        "source_fingerprint": result.source_fingerprint,
        "label": result.label,
        "margin": result.answer.margin,
        "entropy_nats": result.answer.entropy_nats,
        "answer": result.job.answer,
        "task": result.job.task,
        "subtask": result.job.subtask,
    }


def _order_columns(order: OrderBias | None) -> dict[str, Any]:
    return {
        "permutations": order.permutations if order else 1,
        "order_agreement": order.agreement if order else None,
        "order_spread": order.spread if order else None,
        "same_position": order.same_position if order else None,
    }


def _failure_row(run: RunKey, failure: Failure) -> dict[str, Any]:
    return {
        "dataset": run.dataset,
        "job_id": failure.job.job_id,
        "spec_id": run.spec_id,
        "job_digest": failure.job.digest,
        "source_fingerprint": failure.source_fingerprint,
        "stage": failure.stage.value,
        "code": failure.code,
        # Decoders quote the bytes they choke on, and Postgres stores no NUL.
        "message": failure.message.replace("\0", "\N{REPLACEMENT CHARACTER}"),
        "run_id": run.run_id,
        "shard_index": failure.shard_index,
        "host": run.host,
        "task": failure.job.task,
        "subtask": failure.job.subtask,
        "attempts": 1,
    }
