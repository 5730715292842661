"""Audit: every job of a manifest has exactly one label, description or failure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
from pyarrow import csv, parquet
from sqlalchemy import Text, column, select, table, text

from infra.database.copy_out import copy_query
from infra.formulas import without_formulas
from reelabel.errors import ConfigurationError
from reelabel.text import escape_controls, pluralize
from sql.queries import read_query
from tasks.database.tables import RESULT, SPEC
from tasks.database.temp_table import KEYS, temp_job_table, to_data_frames
from tasks.domain import LOW_CHOICE_MASS
from tasks.results.summary import read_figures

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from sqlalchemy import Connection, Engine, Row

    from tasks.database.scope import Scope
    from tasks.domain import Job


_COLUMNS = {"ending": pa.string(), "job_id": pa.string(), "code": pa.string()}
_SCHEMA = pa.schema(_COLUMNS.items())
_LISTED = table("job_audit", *(column(name, Text) for name in _COLUMNS))
_ROWS = select(*_LISTED.c).order_by(_LISTED.c.ending, _LISTED.c.job_id)
# For `backfill --ids-file`, which takes distinct ids of the manifest.
_IDS = select(_LISTED.c.job_id).where(_LISTED.c.ending.not_in(("orphaned", "repeated"))).distinct().order_by("job_id")


def check_listing(path: Path) -> None:
    """Raise ConfigurationError if the suffix of a list's name is that of no format; see `write_listing`."""
    if path.suffix not in {".parquet", ".csv", ".txt"}:
        raise ConfigurationError(f"Unknown format of --list {path}; use a name that ends in .parquet, .csv or .txt.")


def write_listing(connection: Connection, path: Path, *, raw: bool = False) -> None:
    """Write the temporary table `job_audit` to a .parquet, .csv or .txt file.

    Parquet and CSV files have the columns ending (missing, failed, doubled, stale, repeated, orphaned), job_id and
    code. Text files have one id per line, of the jobs that a backfill can repeat. Texts of CSV files that a spreadsheet
    would take for formulas are escaped (`without_formulas`), unless `raw`.
    """
    if path.suffix == ".txt":
        with path.open("w", encoding="utf-8") as file:
            for frame in copy_query(connection, _IDS, {"job_id": pa.string()}):
                file.writelines(f"{job_id}\n" for job_id in frame["job_id"].to_list())
        return
    is_csv = path.suffix == ".csv"
    writer = csv.CSVWriter if is_csv else parquet.ParquetWriter
    with writer(path, _SCHEMA) as file:
        for rows in copy_query(connection, _ROWS, _COLUMNS):
            frame = without_formulas(rows) if is_csv and not raw else rows
            file.write_table(frame.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(_SCHEMA))


_FAULTS = ("missing", "doubled", "stale", "repeated")
_SHOWN = 3
_JOB_AUDIT = text("CREATE TEMPORARY TABLE job_audit (job_id text, code text, ending text) ON COMMIT DROP")
_AUDIT, _REPEATED, _COUNTS = (text(read_query(name)) for name in ("audit", "audit_repeated", "audit_counts"))
_CHUNKS = text(
    "SELECT coalesce(sum(chunks), 0)::bigint, coalesce(sum(chunks - chunks_answered), 0)::bigint FROM ("
    "SELECT job_id, job_digest, dataset, spec_id, chunks, chunks_answered FROM reelabel.result UNION ALL "
    "SELECT job_id, job_digest, dataset, spec_id, chunks, chunks_answered FROM reelabel.failure) AS ended "
    "JOIN manifest_jobs USING (job_id, job_digest) "
    "WHERE dataset = :dataset AND spec_id = :spec_id AND chunks IS NOT NULL"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """Result of an audit, in numbers of jobs.

    Attributes:
        jobs: Rows of the manifest.
        labels: Jobs with a current label or description, and no failure.
        failures: Jobs with a current failure and no label.
        missing: Jobs with neither.
        doubled: Jobs with both.
        stale: Jobs whose row was written for another prompt, video or choices.
        repeated: Ids that occur in several rows of the manifest.
        orphaned: Rows of the dataset whose job is not in the manifest; no fault, since manifests may share a dataset.
        examples: The first ids of jobs that are missing, doubled, stale or repeated.
        chunks: Chunks of the jobs that were cut.
        chunks_failed: Chunks without an answer.
        describes: Whether `labels` counts descriptions.
        low_mass: Labels whose choices together have a probability below `LOW_CHOICE_MASS`.
        copied: Labels copied from another job, whose video is a near-duplicate.
    """

    jobs: int
    labels: int
    failures: int
    missing: int
    doubled: int
    stale: int
    repeated: int
    orphaned: int
    codes: dict[str, int]
    examples: tuple[str, ...]
    chunks: int = 0
    chunks_failed: int = 0
    describes: bool = False
    low_mass: int = 0
    copied: int = 0

    @property
    def is_reconciled(self) -> bool:
        return self.labels + self.failures == self.jobs and not self.repeated

    @property
    def without_missing(self) -> AuditReport:
        return replace(self, jobs=self.jobs - self.missing, missing=0)

    def __str__(self) -> str:
        ended = pluralize(self.labels, "description" if self.describes else "label")
        if self.low_mass:
            ended += f" ({self.low_mass:,} with choice_mass below {LOW_CHOICE_MASS})"
        if self.copied:
            ended += f" ({self.copied:,} copied from near-duplicates)"
        counts = f"{pluralize(self.jobs, 'job')} = {ended} + {pluralize(self.failures, 'failure')}"
        if self.chunks:
            counts += f", from {pluralize(self.chunks, 'chunk')}, {self.chunks_failed:,} of them without an answer"
        if self.is_reconciled:
            return f"Reconciled: {counts}."
        faults = f"{self.missing:,} missing, {self.doubled:,} doubled, {self.stale:,} stale"
        if self.repeated:
            faults += f", {self.repeated:,} ids in several rows of the manifest"
        examples = ", ".join(map(escape_controls, self.examples))
        again = f"run `reelabel {'describe' if self.describes else 'classify'}` again"
        return f"Not reconciled: {counts}, but {faults}, such as {examples}; {again}."


def audit_jobs(
    engine: Engine,
    scope: Scope,
    *,
    jobs: Sequence[Job] | Iterable[pl.DataFrame],
    listing: Path | None = None,
    raw: bool = False,
) -> AuditReport:
    """Compare a manifest's jobs with the rows of the database; `listing` gets the jobs without a valid label.

    Data frames have the manifest's columns, `row` and `job_digest`; `raw` is that of `write_listing`.
    """
    # Hashes, as they are copied: to group ten million ids in Postgres would take longer than all else.
    seen = [pl.Series([], dtype=pl.UInt64)]

    def noted() -> Iterator[pl.DataFrame]:
        for frame in to_data_frames(jobs):
            seen.append(frame["job_id"].hash())
            yield frame

    with temp_job_table(engine, noted(), columns=KEYS) as connection:
        connection.execute(_JOB_AUDIT)
        connection.execute(_AUDIT, scope.key)
        hashes = pl.concat(seen)
        if hashes.is_duplicated().any():
            connection.execute(_REPEATED)
        rows = connection.execute(_COUNTS).all()
        chunks, chunks_failed = connection.execute(_CHUNKS, scope.key).one()
        describes = connection.scalar(select(SPEC.c.body.has_key("job")).where(SPEC.c.spec_id == scope.spec_id))
        figures = read_figures(connection, scope.matches(RESULT))
        if listing:
            write_listing(connection, listing, raw=raw)
    return replace(
        _report(len(hashes), rows),
        chunks=chunks,
        chunks_failed=chunks_failed,
        describes=bool(describes),
        low_mass=figures["low_mass"],
        copied=figures["copied"],
    )


def _report(jobs: int, rows: Iterable[Row[Any]]) -> AuditReport:
    counts, codes = Counter[str](), Counter[str]()
    first_ids: dict[str, list[str]] = {fault: [] for fault in _FAULTS}
    for row in rows:
        counts[row.ending] += row.jobs
        if row.ending == "failed":
            codes[row.code] += row.jobs
        if row.ending in first_ids:
            first_ids[row.ending] += row.first_ids
    return AuditReport(
        jobs=jobs,
        labels=jobs - sum(counts[ending] for ending in ("failed", "missing", "doubled", "stale")),
        failures=counts["failed"],
        missing=counts["missing"],
        doubled=counts["doubled"],
        stale=counts["stale"],
        repeated=counts["repeated"],
        orphaned=counts["orphaned"],
        codes=dict(codes.most_common()),
        examples=tuple(job_id for ids in first_ids.values() for job_id in sorted(ids)[:_SHOWN]),
    )
