"""Writes the results, descriptions and failures of shards, each shard in one transaction."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING, Any

from psycopg.errors import ForeignKeyViolation
from sqlalchemy import delete, func, insert, literal, select, text

from infra.database.connect import database_errors
from reelabel.errors import InternalError, ReelabelError, TransientError, VideoChangedError
from reelabel.unexpected import failing_alone
from reelabel_engine.errors import InferenceError
from sql.queries import read_query
from tasks.database.scope import Scope
from tasks.database.tables import DESCRIPTION, FAILURE, RESULT, RESULT_HISTORY
from tasks.database.temp_table import array_literal, copy_rows
from tasks.domain import MAX_JOBS, ChunkCounts, Failure, FirstAnswer, Words
from tasks.domain.provenance import FrameProvenance
from tasks.domain.record import names_of, values_of
from tasks.plans.lease import finish
from tasks.results.chunks import ANSWER_COLUMNS, answer_values, replace_chunks
from tasks.results.descriptions import write_descriptions

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence
    from typing import TypeVar
    from uuid import UUID

    from sqlalchemy import ColumnElement, Connection, Engine, Row, Table

    from tasks.description.described import DescribedVideo
    from tasks.domain import JobResult
    from tasks.domain.chunks import ChunkOutcome
    from tasks.plans.lease import Lease

    Outcome = TypeVar("Outcome", JobResult, Failure)

_SHARED = ("run_id", "dataset", "spec_id", "host")
_JOB_COLUMNS = ("job_id", "job_digest", "task", "subtask")
_job_values = attrgetter("job_id", "digest", "task", "subtask")
_FAILURE_COLUMNS = (
    *("fence", *_JOB_COLUMNS, "source_fingerprint", "code", "shard_index"),
    *("stage", "message", "attempts", *names_of(ChunkCounts)),
)
_failure_values = attrgetter("source_fingerprint", "code", "shard_index")
_LOCK, _CURRENT_ROWS = text(read_query("lock_jobs")), text(read_query("current_rows"))
# Each job is locked until its transaction ends, and the lock table of Postgres has a few thousand entries.
_MAX_LOCKS = 2 * MAX_JOBS


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKey(Scope):
    """The values that all rows of a run share."""

    run_id: UUID
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardResults:
    """The outcomes of a shard's jobs, each of which has one result, description or failure.

    Attributes:
        chunks: All chunks of the jobs that were cut.
        lease: None outside of a plan, which counts as older than every lease.
        report: Report of the shard, for its row.
    """

    results: Sequence[JobResult]
    failures: Sequence[Failure]
    chunks: Sequence[ChunkOutcome] = ()
    descriptions: Sequence[DescribedVideo] = ()
    lease: Lease | None = None
    report: dict[str, Any] | None = None

    @property
    def fence(self) -> int:
        """Token of the lease; newer leases have greater tokens."""
        return self.lease.token if self.lease else 0

    @property
    def outcomes(self) -> list[JobResult | DescribedVideo | Failure]:
        return [*self.results, *self.descriptions, *self.failures]

    @property
    def counts(self) -> dict[str, int]:
        """Number of jobs by column of the run's row."""
        return {"jobs_labelled": len(self.results) + len(self.descriptions), "jobs_failed": len(self.failures)}

    def only(self, job_ids: Container[str]) -> ShardResults:
        """Return the outcomes of some of the jobs."""
        return replace(
            self,
            results=[each for each in self.results if each.job.job_id in job_ids],
            failures=[each for each in self.failures if each.job.job_id in job_ids],
            chunks=[each for each in self.chunks if each.job.job_id in job_ids],
            descriptions=[each for each in self.descriptions if each.job.job_id in job_ids],
        )

    def with_refused(self, refused: Mapping[str, Failure]) -> ShardResults:
        """Replace the outcomes of some jobs, by their ids, by failures."""
        kept = self.only({each.job.job_id for each in self.outcomes} - refused.keys())
        ended = replace(kept, failures=[*kept.failures, *refused.values()])
        report = self.report and self.report | {"tally": self.report["tally"] | ended.counts}
        return replace(ended, report=report)


def write_shards(engine: Engine, *, run: RunKey, shards: Sequence[ShardResults]) -> None:
    """Write the outcomes of shards, and mark the shards as done, in one transaction.

    The new row of a job replaces the old one, and a replaced label is kept in the history. There are two exceptions: a
    failure does not replace a label for the same question about the same video, or about one that cannot be reached;
    and no row replaces one that was written under a newer lease. A job that was cut is written with all of its chunks.

    Idempotent, except that a failure counts its attempts. The shards have together a few hundred jobs, all different.

    Raises:
        LeaseLostError: Another worker holds one of the shards; nothing was written.
        DatabaseUnavailableError: Nothing was written.
    """
    with database_errors(), engine.begin() as connection:
        # Every writer locks shards in the order of their leases, to avoid deadlocks.
        in_order = sorted(shards, key=attrgetter("fence"))
        ended = [
            shard
            for shard in in_order
            if shard.lease is None or finish(connection, shard.lease, state="done", report=shard.report)
        ]
        if ended:
            _write(connection, run, ended)


def _refused(engine: Engine, run: RunKey, shard: ShardResults) -> dict[str, Failure]:
    """Try to write each outcome by itself, and roll back; return failures for those that cannot be written."""
    refused: dict[str, Failure] = {}
    with database_errors(), engine.connect() as connection:
        for outcome in shard.outcomes:
            job_id = outcome.job.job_id
            try:
                subject = f"Storing the outcome of job {job_id}"
                with failing_alone(subject, stage=InferenceError.stage), database_errors():
                    _write(connection, run, [shard.only({job_id})])
            except InternalError as error:
                refused[job_id] = Failure.of(error, outcome.job, outcome.shard_index)
            finally:
                connection.rollback()
    return refused


def _write(connection: Connection, run: RunKey, shards: Sequence[ShardResults]) -> None:
    current = _CurrentRows.locked(connection, run, [each.job.job_id for shard in shards for each in shard.outcomes])
    results = [(result, shard.fence) for shard in shards for result in shard.results]
    failures = [(current.counted(each), shard.fence) for shard in shards for each in shard.failures]
    videos = [(video, shard.fence) for shard in shards for video in shard.descriptions]
    labelled = [(result, fence) for result, fence in results if current.newest.get(result.job.job_id, 0) <= fence]
    described = [(video, fence) for video, fence in videos if current.newest.get(video.job.job_id, 0) <= fence]
    recorded = [(failure, fence) for failure, fence in failures if current.are_replaced_by(failure, fence)]
    # Old rows are deleted first, so that one COPY, which cannot update, writes the new ones.
    new: list[tuple[JobResult | DescribedVideo | Failure, int]] = [*labelled, *described, *recorded]
    ended = {outcome.job.job_id for outcome, _ in new}
    _keep(connection, run, current.labels.keys() & ended)
    _drop(connection, RESULT, run, current.labels.keys() & ended)
    _drop(connection, DESCRIPTION, run, current.labels.keys() & ended)
    _drop(connection, FAILURE, run, current.failures.keys() & ended)
    shared = {name: getattr(run, name) for name in _SHARED}
    chunks = [(chunk, shard.fence) for shard in shards for chunk in shard.chunks if chunk.job.job_id in ended]
    cut = {chunk.job.job_id for chunk, _ in chunks}
    kept = {each.job.job_id for each, _ in recorded if each.chunks} - cut
    replace_chunks(connection, chunks, replaced=((current.cut | cut) & ended) - kept, shared=shared)
    if labelled:
        rows = ((fence, *_result_row(result)) for result, fence in labelled)
        copy_rows(connection, RESULT, _RESULT_COLUMNS, rows, shared=shared)
    if described:
        write_descriptions(connection, described, shared=shared)
    if recorded:
        rows = ((fence, *_failure_row(each, current.failures.get(each.job.job_id))) for each, fence in recorded)
        copy_rows(connection, FAILURE, _FAILURE_COLUMNS, rows, shared=shared)


@dataclass(frozen=True, slots=True)
class _CurrentRows:
    """The rows of some jobs before a write, by job id.

    Attributes:
        labels: Labels or descriptions.
        newest: Token of the newest lease under which a row of the job was written.
        cut: Ids of the jobs that have rows of chunks.
    """

    labels: dict[str, Row[Any]]
    failures: dict[str, Row[Any]]
    newest: dict[str, int]
    cut: set[str]

    @classmethod
    def locked(cls, connection: Connection, run: RunKey, job_ids: list[str]) -> _CurrentRows:
        # Without the lock, two writers could give a job both a label and a failure.
        key = {**run.key, "job_ids": array_literal(map(_quoted, job_ids))}
        connection.execute(_LOCK, key)
        rows = sorted(connection.execute(_CURRENT_ROWS, key).all(), key=attrgetter("fence"))
        return cls(
            labels={row.job_id: row for row in rows if row.is_label},
            failures={row.job_id: row for row in rows if not row.is_label},
            newest={row.job_id: row.fence for row in rows},
            cut={row.job_id for row in rows if row.chunks},
        )

    def counted(self, failure: Failure) -> Failure:
        """Give a failure the counts of the chunks that stay in the table, if the video is unavailable for now."""
        before = self.failures.get(failure.job.job_id)
        if failure.chunks or failure.job.chunk_s is None or before is None or not before.chunks_answered:
            return failure
        if before.job_digest != failure.job.digest or failure.code == VideoChangedError.code:
            return failure
        if failure.source_fingerprint not in {before.source_fingerprint, None}:
            return failure
        return replace(failure, chunks=ChunkCounts(total=before.chunks, answered=before.chunks_answered))

    def are_replaced_by(self, failure: Failure, fence: int) -> bool:
        """Whether a failure may be written: its job has neither a newer row nor a label that is still valid."""
        label = self.labels.get(failure.job.job_id)
        is_valid = (
            label is not None
            and label.job_digest == failure.job.digest
            and failure.source_fingerprint in {label.source_fingerprint, None}
        )
        return not is_valid and self.newest.get(failure.job.job_id, 0) <= fence


def _keep(connection: Connection, run: RunKey, job_ids: set[str]) -> None:
    if job_ids:
        names = [column.name for column in RESULT_HISTORY.c if column.name in RESULT.c]
        replaced = select(*(RESULT.c[name] for name in names), literal(run.run_id)).where(_of(RESULT, run, job_ids))
        connection.execute(insert(RESULT_HISTORY).from_select([*names, "replaced_by"], replaced))


def _drop(connection: Connection, table: Table, run: RunKey, job_ids: set[str]) -> None:
    if job_ids:
        connection.execute(delete(table).where(_of(table, run, job_ids)))


def _of(table: Table, run: RunKey, job_ids: set[str]) -> ColumnElement[bool]:
    return run.matches(table) & (table.c.job_id == func.any(list(job_ids)))


_RESULT_COLUMNS = (
    *("fence", *_JOB_COLUMNS, "answer", "shard_index", "copied_from"),
    *(*ANSWER_COLUMNS, *names_of(FrameProvenance, FirstAnswer, ChunkCounts, Words)),
)


def _result_row(result: JobResult) -> tuple[Any, ...]:
    return (
        *(*_job_values(result.job), result.job.answer, result.shard_index, result.copied_from),
        *(*answer_values(result), *values_of(FrameProvenance, result.provenance)),
        *values_of(FirstAnswer, result.first),
        *values_of(ChunkCounts, result.chunks),
        *values_of(Words, result.answer.words),
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _failure_row(failure: Failure, before: Row[Any] | None) -> tuple[Any, ...]:
    attempts = 1 + (before.attempts if before else 0)
    values = (*_job_values(failure.job), *_failure_values(failure))
    return *values, failure.stage.value, failure.message, attempts, *values_of(ChunkCounts, failure.chunks)


_Waiting = tuple[ShardResults, "Future[dict[str, Failure]]"]


@dataclass(frozen=True, slots=True)
class ShardWriter:
    """Writes the shards of a run. Thread-safe.

    A transaction of several shards costs little more than one of a single shard. No thread waits for a group to fill:
    the first one writes at once, and those that arrive meanwhile share the next transaction.
    """

    engine: Engine
    run: RunKey
    _gathered: deque[_Waiting] = field(default_factory=deque, init=False, repr=False)
    _turn: Lock = field(default_factory=Lock, init=False, repr=False)

    def write(
        self,
        results: Sequence[JobResult],
        failures: Sequence[Failure],
        *,
        lease: Lease | None = None,
        report: dict[str, Any] | None = None,
        chunks: Sequence[ChunkOutcome] = (),
        descriptions: Sequence[DescribedVideo] = (),
    ) -> dict[str, Failure]:
        """Write the outcomes of a shard's jobs, and mark it as done; see `write_shards`.

        A job whose outcome cannot be converted to a row, or is refused by Postgres, gets a failure instead.

        Returns:
            These failures, by job id.

        Raises:
            LeaseLostError: Another worker holds the shard; nothing of it was written.
            DatabaseUnavailableError: Nothing of it was written.
        """
        done = Future[dict[str, Failure]]()
        ended = ShardResults(
            results=results,
            failures=failures,
            chunks=chunks,
            descriptions=descriptions,
            lease=lease,
            report=report,
        )
        self._gathered.append((ended, done))
        with self._turn:
            while not done.done():
                self._write(self._take())
        return done.result()

    def _take(self) -> list[_Waiting]:
        """Take waiting shards in order, as many as fit into a transaction, but at least one."""
        group: list[_Waiting] = []
        jobs = 0
        while self._gathered:
            jobs += len(self._gathered[0][0].outcomes)
            if group and jobs > _MAX_LOCKS:
                break
            group.append(self._gathered.popleft())
        return group

    def _write(self, group: list[_Waiting]) -> None:
        shards = [shard for shard, _ in group]
        try:
            refused = self._write_unless_refused(shards)
        except BaseException as error:  # noqa: BLE001 - raised in the waiting threads
            if len(group) > 1 and isinstance(error, Exception) and not isinstance(error, TransientError):
                for each in group:  # one of the shards may be the cause
                    self._write([each])
            else:
                for _, done in group:
                    done.set_exception(error)
        else:
            for _, done in group:
                done.set_result(refused)

    def _write_unless_refused(self, shards: list[ShardResults]) -> dict[str, Failure]:
        """Write shards; if a single one has outcomes that are refused, write failures for them, and return these."""
        try:
            write_shards(self.engine, run=self.run, shards=shards)
        except (ReelabelError, ForeignKeyViolation):  # the latter for the row of the run, which no outcome can mend
            raise
        except Exception:
            refused = _refused(self.engine, self.run, shards[0]) if len(shards) == 1 else {}
            if not refused:
                raise
            write_shards(self.engine, run=self.run, shards=[shards[0].with_refused(refused)])
            return refused
        return {}
