"""Which jobs still have to be asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
from sqlalchemy import and_, func, or_, select, true

from infra.database.connect import database_errors
from infra.database.copy_out import copy_query
from reelabel.errors import VideoUnavailableError
from tasks.database.tables import FAILURE, RESULT, RUN
from tasks.database.temp_table import ASKED, KEYS, has_rows, temp_job_table
from tasks.domain import Stage
from tasks.manifest.schema import ROW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from uuid import UUID

    import numpy.typing as npt
    from sqlalchemy import Engine, Select, Table

    from tasks.manifest.table import JobTable

_URIS_AT_ONCE = 10_000
_PASSING = (VideoUnavailableError.code,)
_ENDED = {ROW: pa.uint32(), "source_fingerprint": pa.string()}
_OPEN, _FAILED, _LABELLED = range(3)
# Fingerprints are compared by 64 bits of hash: of ten million, none is mistaken in a billion runs.
_GONE = pl.Series([None], dtype=pl.String).hash().item()


def pending_jobs(
    engine: Engine,
    *,
    dataset: str,
    spec_id: str,
    jobs: JobTable,
    fingerprints_of: Callable[[Sequence[str]], Sequence[str | None]],
    retry_failures: bool = False,
    run_id: UUID | None = None,
) -> JobTable:
    """Select the jobs that have not ended.

    A label is valid while the job's digest and its video's fingerprint are those it was given for;
    it outlives its video. So does a failure end its job, unless a frame file was at fault, for making
    it anew may cure that, or a web server.

    Args:
        engine: The database.
        dataset: Where the jobs' ids are unique.
        spec_id: The way of asking.
        jobs: Those of which to select.
        fingerprints_of: Looks at videos; None where one is gone or refused. Called with some thousand URIs
            at a time, in their order, each once, and only with videos of jobs that have a row.
        retry_failures: Count failed jobs among the pending ones.
        run_id: A run whose failures end their jobs whatever was at fault: who asks again has asked them itself.

    Raises:
        DatabaseUnavailableError: Postgres did not answer.
    """
    if not has_rows(engine, dataset=dataset, spec_id=spec_id):
        return jobs
    with temp_job_table(engine, jobs.parts(), columns=KEYS) as connection:
        ended = _Endings.of(jobs.rows)
        if not retry_failures:
            for rows in copy_query(connection, _failed(dataset, spec_id, run_id), _ENDED):
                ended.note(rows, _FAILED)
        for rows in copy_query(connection, _same_job(RESULT, dataset, spec_id), _ENDED):
            ended.note(rows, _LABELLED)
    return jobs.chosen(ended.still_open(jobs.parts(), fingerprints_of))


@dataclass(frozen=True, slots=True)
class _Endings:
    """How each row ended, and the hash of its video's fingerprint then."""

    state: npt.NDArray[np.uint8]
    given_for: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, rows: int) -> _Endings:
        return cls(np.zeros(rows, np.uint8), np.zeros(rows, np.uint64))

    def note(self, rows: pl.DataFrame, state: int) -> None:
        places = rows[ROW].to_numpy()
        self.state[places] = state
        self.given_for[places] = rows["source_fingerprint"].hash().to_numpy()

    def still_open(
        self, parts: Iterable[pl.DataFrame], fingerprints_of: Callable[[Sequence[str]], Sequence[str | None]]
    ) -> npt.NDArray[np.bool_]:
        jobs = [part.select(ROW, "video_uri").filter(self.state[part[ROW].to_numpy()] != _OPEN) for part in parts]
        uris = pl.concat([pl.Series("video_uri", [], dtype=pl.String), *(part["video_uri"].unique() for part in jobs)])
        is_open = np.ones(len(self.state), np.bool_)
        looked = 0
        now = _look(uris, fingerprints_of)
        for part in jobs:
            videos = part["video_uri"].n_unique()
            known = pl.DataFrame({"video_uri": uris.slice(looked, videos), "now": now[looked : looked + videos]})
            looked += videos
            rows, then = self._compare(part.join(known, on="video_uri", how="left", maintain_order="left"))
            is_open[rows] = ~then
        return is_open

    def _compare(self, part: pl.DataFrame) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
        rows, now = part[ROW].to_numpy(), part["now"].to_numpy()
        outlives = (self.state[rows] == _LABELLED) & (now == _GONE)
        return rows, (now == self.given_for[rows]) | outlives


def _look(uris: pl.Series, fingerprints_of: Callable[[Sequence[str]], Sequence[str | None]]) -> npt.NDArray[np.uint64]:
    """Hash every video's fingerprint; they are looked at in the order of their URIs, as stores list them."""
    order = uris.arg_sort().to_numpy()
    hashes = np.empty(len(uris), np.uint64)
    for start in range(0, len(uris), _URIS_AT_ONCE):
        places = order[start : start + _URIS_AT_ONCE]
        found = fingerprints_of(uris.gather(places).to_list())
        hashes[places] = pl.Series(found, dtype=pl.String).hash().to_numpy()
    return hashes


def _same_job(table: Table, dataset: str, spec_id: str) -> Select[tuple[int, str]]:
    # Not an equality to Postgres, which would hash both columns of each of the dataset's rows.
    same_question = (table.c.job_digest == ASKED.c.job_digest).is_(true())
    same = (table.c.job_id == ASKED.c.job_id) & same_question
    query = select(ASKED.c.row, table.c.source_fingerprint).join(table, same)
    return query.where(table.c.dataset == dataset, table.c.spec_id == spec_id)


def _failed(dataset: str, spec_id: str, run_id: UUID | None) -> Select[tuple[int, str]]:
    lasting = and_(FAILURE.c.stage != Stage.CACHE.value, FAILURE.c.code.not_in(_PASSING))
    is_ended = lasting if run_id is None else or_(lasting, FAILURE.c.run_id == run_id)
    return _same_job(FAILURE, dataset, spec_id).where(is_ended)


def count_reused_ids(engine: Engine, *, dataset: str, manifest_uri: str, jobs: JobTable) -> int:
    """Count jobs whose id another manifest has used in this dataset for another question."""
    others = select(RUN.c.run_id).where(RUN.c.dataset == dataset, RUN.c.manifest_uri != manifest_uri)
    other = (RESULT.c.job_id == ASKED.c.job_id) & (RESULT.c.job_digest != ASKED.c.job_digest)
    query = (
        select(func.count(RESULT.c.job_id.distinct()))
        .join(ASKED, other)
        .where(RESULT.c.dataset == dataset, RESULT.c.run_id.in_(others))
    )
    with database_errors(), engine.connect() as connection:
        if connection.execute(others.limit(1)).first() is None:
            return 0
    with temp_job_table(engine, jobs.parts(), columns=KEYS) as connection:
        return connection.execute(query).scalar_one()
