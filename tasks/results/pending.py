"""The jobs of a manifest that still have to be answered, and its annotations in the rows of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
from sqlalchemy import and_, func, or_, select, true, update

from infra.database.connect import database_errors, require_writes
from infra.database.copy_out import copy_query
from tasks.database.tables import DESCRIPTION, FAILURE, RESULT, RUN
from tasks.database.temp_table import KEYS, MANIFEST_JOBS, has_rows, temp_job_table
from tasks.domain import PASSING_CODES, Stage
from tasks.domain.job import join_fingerprints
from tasks.manifest.media import media_of
from tasks.manifest.schema import ROW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from uuid import UUID

    import numpy.typing as npt
    from sqlalchemy import Engine, Select, Table

    from tasks.database.scope import Scope
    from tasks.manifest.table import JobTable


_URIS_PER_BATCH = 10_000
_ENDED = {ROW: pa.uint32(), "source_fingerprint": pa.string()}
_NO_ROW, _FAILED, _LABELLED = range(3)
# Fingerprints are compared by 64-bit hashes: of runs with ten million videos, one in 10^12 takes two for the same.
_MISSING = pl.Series([None], dtype=pl.String).hash().item()


def pending_jobs(
    engine: Engine,
    scope: Scope,
    *,
    jobs: JobTable,
    fingerprints_of: Callable[[Sequence[str]], Sequence[str | None]],
    retry_failures: bool = False,
    run_id: UUID | None = None,
) -> JobTable:
    """Select the jobs that have neither a valid label or description nor a lasting failure.

    A row is valid while the job's digest and the video's fingerprint are those it was written for. A label stays valid
    when its video is removed. Failures of a frame file or of a server are not lasting, since another attempt may
    succeed.

    Args:
        engine: The database.
        scope: The dataset and the spec.
        jobs: The jobs to select from.
        fingerprints_of: Returns the fingerprints of videos; None for those missing or refused. Called with sorted
            batches of up to 10,000 URIs, once per video and part of `jobs`, and only for jobs that have a row.
        retry_failures: Whether to include all failed jobs.
        run_id: A run that plans again: all of its own failures are lasting.
    """
    if not has_rows(engine, scope):
        return jobs
    with temp_job_table(engine, jobs.parts(), columns=KEYS) as connection:
        outcomes = _Outcomes.of(jobs.rows)
        if not retry_failures:
            for rows in copy_query(connection, _failed(scope, run_id), _ENDED):
                outcomes.record(rows, _FAILED)
        for table in (RESULT, DESCRIPTION):
            for rows in copy_query(connection, _same_job(table, scope), _ENDED):
                outcomes.record(rows, _LABELLED)
    return jobs.chosen(outcomes.pending(jobs.parts(), fingerprints_of))


def changed_jobs(
    engine: Engine,
    scope: Scope,
    *,
    jobs: JobTable,
    fingerprints_of: Callable[[Sequence[str]], Sequence[str | None]],
) -> JobTable:
    """Select the jobs whose video has changed since their label or failure; a removed video has not changed.

    The arguments are those of `pending_jobs`.
    """
    with temp_job_table(engine, jobs.parts(), columns=KEYS) as connection:
        outcomes = _Outcomes.of(jobs.rows)
        for table in (FAILURE, RESULT, DESCRIPTION):
            for rows in copy_query(connection, _same_job(table, scope), _ENDED):
                outcomes.record(rows, _LABELLED)  # which outlive their videos, as failures do here
    has_row = outcomes.state != _NO_ROW
    return jobs.chosen(outcomes.pending(jobs.parts(), fingerprints_of) & has_row)


@dataclass(frozen=True, slots=True)
class _Outcomes:
    """The state of each job by its row in the manifest, and the hash of the fingerprint that its outcome is about."""

    state: npt.NDArray[np.uint8]
    fingerprint_hash: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, rows: int) -> _Outcomes:
        return cls(np.zeros(rows, np.uint8), np.zeros(rows, np.uint64))

    def record(self, rows: pl.DataFrame, state: int) -> None:
        places = rows[ROW].to_numpy()
        self.state[places] = state
        self.fingerprint_hash[places] = rows["source_fingerprint"].hash().to_numpy()

    def pending(
        self, parts: Iterable[pl.DataFrame], fingerprints_of: Callable[[Sequence[str]], Sequence[str | None]]
    ) -> npt.NDArray[np.bool_]:
        ended = [
            part.select(ROW, "video_uri", "media").filter(self.state[part[ROW].to_numpy()] != _NO_ROW) for part in parts
        ]
        jobs = [part.filter(pl.col("media").is_null()).drop("media") for part in ended]
        uris = pl.concat([pl.Series("video_uri", [], dtype=pl.String), *(part["video_uri"].unique() for part in jobs)])
        is_pending = np.ones(len(self.state), np.bool_)
        offset = 0
        now = _hash_fingerprints(uris, fingerprints_of)
        for part in jobs:
            videos = part["video_uri"].n_unique()
            known = pl.DataFrame({"video_uri": uris.slice(offset, videos), "now": now[offset : offset + videos]})
            offset += videos
            rows, are_valid = self._compare(part.join(known, on="video_uri", how="left", maintain_order="left"))
            is_pending[rows] = ~are_valid
        for part in ended:
            if part["media"].null_count() < len(part):
                rows, are_valid = self._compare(_joined(part.drop_nulls("media"), fingerprints_of))
                is_pending[rows] = ~are_valid
        return is_pending

    def _compare(self, part: pl.DataFrame) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
        rows, now = part[ROW].to_numpy(), part["now"].to_numpy()
        outlives_video = (self.state[rows] == _LABELLED) & (now == _MISSING)
        return rows, (now == self.fingerprint_hash[rows]) | outlives_video


def _joined(part: pl.DataFrame, fingerprints_of: Callable[[Sequence[str]], Sequence[str | None]]) -> pl.DataFrame:
    """Return the rows of jobs on several videos and images, with the hash of their joined fingerprint as `now`."""
    shown = media_of(part)
    uris = shown["uri"].unique().sort().to_list()
    found: dict[str, str | None] = {}
    for start in range(0, len(uris), _URIS_PER_BATCH):
        batch = uris[start : start + _URIS_PER_BATCH]
        found |= zip(batch, fingerprints_of(batch), strict=True)
    media = shown.group_by(ROW, maintain_order=True).agg("uri")
    joined = [join_fingerprints([found[uri] for uri in uris]) for uris in media["uri"].to_list()]
    return media.select(ROW, now=pl.Series(joined, dtype=pl.String).hash())


def _hash_fingerprints(
    uris: pl.Series, fingerprints_of: Callable[[Sequence[str]], Sequence[str | None]]
) -> npt.NDArray[np.uint64]:
    """Hash the fingerprints of videos, looked up in the order of their URIs, as stores list them."""
    order = uris.arg_sort().to_numpy()
    hashes = np.empty(len(uris), np.uint64)
    for start in range(0, len(uris), _URIS_PER_BATCH):
        places = order[start : start + _URIS_PER_BATCH]
        found = fingerprints_of(uris.gather(places).to_list())
        hashes[places] = pl.Series(found, dtype=pl.String).hash().to_numpy()
    return hashes


def _same_job(table: Table, scope: Scope) -> Select[int, str]:
    # IS TRUE hides the equality from Postgres, which would otherwise hash both columns of all rows of the dataset.
    same_question = (table.c.job_digest == MANIFEST_JOBS.c.job_digest).is_(true())
    same = (table.c.job_id == MANIFEST_JOBS.c.job_id) & same_question
    return select(MANIFEST_JOBS.c.row, table.c.source_fingerprint).join(table, same).where(scope.matches(table))


def _failed(scope: Scope, run_id: UUID | None) -> Select[int, str]:
    is_permanent = and_(FAILURE.c.stage != Stage.CACHE.value, FAILURE.c.code.not_in(PASSING_CODES))
    is_ended = is_permanent if run_id is None else or_(is_permanent, FAILURE.c.run_id == run_id)
    return _same_job(FAILURE, scope).where(is_ended)


def count_reused_ids(
    engine: Engine, *, dataset: str, manifest_uri: str, jobs: JobTable, describes: bool = False
) -> int:
    """Count the job ids that another manifest of the dataset uses for a different job."""
    others = select(RUN.c.run_id).where(RUN.c.dataset == dataset, RUN.c.manifest_uri != manifest_uri)
    with database_errors(), engine.connect() as connection:
        if connection.execute(others.limit(1)).first() is None:
            return 0
    table = DESCRIPTION if describes else RESULT
    other = (table.c.job_id == MANIFEST_JOBS.c.job_id) & (table.c.job_digest != MANIFEST_JOBS.c.job_digest)
    query = (
        select(func.count(table.c.job_id.distinct()))
        .join(MANIFEST_JOBS, other)
        .where(table.c.dataset == dataset, table.c.run_id.in_(others))
    )
    with temp_job_table(engine, jobs.parts(), columns=KEYS) as connection:
        return connection.execute(query).scalar_one()


_ANNOTATIONS = ("answer", "task", "subtask")


def refresh_annotations(engine: Engine, scope: Scope, *, jobs: JobTable) -> None:
    """Update the manifest's `answer`, `task` and `subtask` in the rows of earlier runs."""
    if not has_rows(engine, scope):
        return
    require_writes(engine)
    with temp_job_table(engine, jobs.parts()) as connection:
        for table in (RESULT, DESCRIPTION, FAILURE):
            names = [name for name in _ANNOTATIONS if name in table.c]
            is_corrected = or_(*(table.c[name].is_distinct_from(MANIFEST_JOBS.c[name]) for name in names))
            # Lock rows in the order of ids, as writers of shards do, to avoid deadlocks.
            corrected = (
                select(table.c.job_id, *(MANIFEST_JOBS.c[name] for name in names))
                .where(scope.matches(table), table.c.job_id == MANIFEST_JOBS.c.job_id, is_corrected)
                .order_by(table.c.job_id)
                .with_for_update(of=table)
                .cte("corrected")
            )
            statement = update(table).where(scope.matches(table), table.c.job_id == corrected.c.job_id)
            connection.execute(statement.values({name: corrected.c[name] for name in names}))
